"""Kinds of fields in a condition: how a value is read, and which values such a field can have. Pure."""

from __future__ import annotations

import abc
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from packaging.version import InvalidVersion, Version

from service.errors import LastpageError

COMPARISONS = ("==", "!=", ">=", "<=", ">", "<")

_NUMBER = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)\s*(%?)")
_WHOLE_NUMBER = re.compile(r"[0-9]{1,18}")


class InvalidCondition(LastpageError, ValueError):
    """A text that is no condition: what is wrong with it, and what is allowed."""


class NotOfThisForm(LastpageError, ValueError):
    """A value that is not of the form in which such values are written."""


class Place(NamedTuple):
    """Where a value stands, for what a fault says: the field, and the whole comparison as it is written."""

    field: str
    clause: str


@dataclass(frozen=True)
class Kind(abc.ABC):
    """What a field of a condition holds.

    Attributes:
        comparisons: those that make sense with it.
        can_be: the values that such a field can have, as a sentence.
    """

    comparisons: ClassVar[tuple[str, ...]] = COMPARISONS
    can_be: ClassVar[str] = ""

    @abc.abstractmethod
    def read(self, value: str, at: Place) -> Any:
        """The value that a field is compared with, from how it is written.

        Raises:
            NotOfThisForm: it is not written as such values are.
            InvalidCondition: it is, and yet cannot be.
        """

    def write(self, value: Any) -> str:
        """A text from which `read` makes the same value."""
        return str(value)

    def value_of(self, fact: Any) -> Any:
        """What is known of a field, as it compares with what `read` makes; None when it tells nothing."""
        return fact

    @abc.abstractmethod
    def samples(self, bounds: Iterable[Any]) -> set[Any]:
        """Values that the field can have: of each gap between these bounds one, and each bound that it can have.

        Between two bounds every comparison stays as it is. So when some value meets comparisons with these bounds, one
        of the samples does.
        """


@dataclass(frozen=True)
class Number(Kind):
    """A number of at least 0, such as seconds."""

    has_percentages: ClassVar[bool] = False
    can_be = "it is 0 or more"

    def read(self, value: str, at: Place) -> float:
        match = _NUMBER.fullmatch(value)
        if match is None:
            raise NotOfThisForm
        if match[2] and not self.has_percentages:
            raise InvalidCondition(f"{at.field} is no share, so {at.clause!r} has no percentage; write a number")
        bound = float(match[1]) / (100 if match[2] else 1)
        if not math.isfinite(bound):
            raise InvalidCondition(f"the bound of {at.clause!r} is no finite number")
        return bound

    def write(self, value: float) -> str:
        return repr(value).removesuffix(".0")

    def samples(self, bounds: Iterable[float]) -> set[Any]:
        beside = {math.nextafter(bound, side) for bound in bounds for side in (-math.inf, bound, math.inf)}
        return {value for value in beside | {0.0, math.inf} if value >= 0}


@dataclass(frozen=True)
class Fraction(Number):
    """A part of a whole, from 0 to 1. A bound on it may be a percentage."""

    has_percentages = True
    can_be = "a share is from 0 to 1, or from 0% to 100%"

    def samples(self, bounds: Iterable[float]) -> set[Any]:
        return {value for value in super().samples(bounds) | {1.0} if value <= 1}


@dataclass(frozen=True)
class Count(Number):
    """How often something was counted. A bound on it need not be whole."""

    can_be = "it is a whole number, 0 or more"

    def samples(self, bounds: Iterable[float]) -> set[Any]:
        beside = {math.floor(bound) + step for bound in bounds for step in (-1, 0, 1, 2)}
        return {value for value in beside | {0, math.inf} if value >= 0}


@dataclass(frozen=True)
class Size(Kind):
    """A whole number of at least 1, such as tokens of a prompt or pages of a pool."""

    can_be = "it is a whole number, 1 or more"

    def read(self, value: str, at: Place) -> int:
        if not _WHOLE_NUMBER.fullmatch(value):
            raise InvalidCondition(f"{at.field} is compared with a whole number, not with {value!r}")
        return int(value)

    def value_of(self, fact: Any) -> int:
        return int(fact)

    def samples(self, bounds: Iterable[int]) -> set[Any]:
        beside = {bound + step for bound in bounds for step in (0, 1)}
        return {value for value in beside | {1} if value >= 1}


@dataclass(frozen=True)
class Word(Kind):
    """One of some words."""

    words: tuple[str, ...]
    comparisons = ("==", "!=")
    can_be = "it is one of some words"

    def read(self, value: str, at: Place) -> str:
        if value not in self.words:
            raise InvalidCondition(f"{value!r} is no {at.field}; allowed: {', '.join(self.words)}")
        return value

    def value_of(self, fact: Any) -> str:
        return str(fact)

    def samples(self, bounds: Iterable[str]) -> set[Any]:
        return set(self.words).union(bounds)


@dataclass(frozen=True)
class Release(Kind):
    """A version of a release, as PyPI orders them, whatever the mark of a local build."""

    can_be = "it is a version of a release"

    def read(self, value: str, at: Place) -> Version:
        version = _version(value)
        if version is None:
            raise InvalidCondition(f"{at.field} is compared with a version such as 0.5.23, not with {value!r}")
        return version

    def value_of(self, fact: Any) -> Version | None:
        return _version(str(fact))

    def samples(self, bounds: Iterable[Version]) -> set[Any]:
        return {Version("0.0.1.dev0")} | {version for bound in bounds for version in (bound, _just_above(bound))}


def _version(text: str) -> Version | None:
    """None for what tells no release: a branch, or the `0.0.0.dev1+gabc` that builds without a tag have."""
    try:
        version = Version(Version(text).public)
    except InvalidVersion:
        return None
    return version if any(version.release) else None


def _just_above(version: Version) -> Version:
    """A version with hardly any between the two."""
    text = str(version)
    if version.dev is not None:
        return Version(f"{text.rpartition('.dev')[0]}.dev{version.dev + 1}")
    if version.post is not None:
        return Version(f"{text.rpartition('.post')[0]}.post{version.post + 1}.dev0")
    return Version(f"{text}.post0.dev0")
