"""Waivers as data: findings that are known faults of the release under test, written as `prompt_tokens > 3967`. Pure.

A waived finding is counted and shown, and does not fail the run.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from packaging.version import InvalidVersion, Version
from pydantic import BaseModel, ConfigDict, Field, field_validator

from loadgen.checks.findings import FindingKind
from loadgen.scenarios import SCENARIOS
from service.errors import LastpageError
from service.plugin.settings import Allocator, Profile

_NUMBERS = ("prompt_tokens", "max_new_tokens", "page_size", "pool_pages")
_WORDS: Mapping[str, tuple[str, ...]] = {
    "scenario": tuple(SCENARIOS),
    "allocator": tuple(allocator.value for allocator in Allocator),
    "profile": tuple(profile.value for profile in Profile),
}
_VERSIONS = ("release",)
_FIELDS = (*_NUMBERS, *_WORDS, *_VERSIONS)
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_EXAMPLE = "prompt_tokens > 3967 and release == 0.5.23"
_LONGEST = 300
_CLAUSE = re.compile(r"\s*([a-z_]+)\s*(==|!=|>=|<=|>|<)\s*(\S+)\s*")
_NUMBER = re.compile(r"[0-9]{1,18}")
_QUOTED = re.compile(r"""(["'])([^"']*)\1""")


class InvalidCondition(LastpageError, ValueError):
    """A text that is no condition."""


@dataclass(frozen=True)
class Clause:
    """One comparison, such as `prompt_tokens > 3967`."""

    field: str
    comparison: str
    value: str

    @classmethod
    def parse(cls, text: str) -> Clause:
        """Read a comparison.

        Raises:
            InvalidCondition: what is wrong and what is allowed.
        """
        match = _CLAUSE.fullmatch(text)
        if match is None:
            raise InvalidCondition(
                f"{text.strip()!r} is no comparison; write FIELD COMPARISON VALUE, several joined by `and`, "
                f"as in '{_EXAMPLE}', with one of {' '.join(_COMPARISONS)}"
            )
        field, comparison, value = match.groups()
        value = _QUOTED.sub(r"\2", value)
        if field not in _FIELDS:
            raise InvalidCondition(f"unknown field {field!r} in {text.strip()!r}; allowed: {', '.join(_FIELDS)}")
        if field in _NUMBERS and not _NUMBER.fullmatch(value):
            raise InvalidCondition(f"{field} is compared with a whole number, not with {value!r}")
        if field in _VERSIONS and _version(value) is None:
            raise InvalidCondition(f"{field} is compared with a version such as 0.5.23, not with {value!r}")
        if field in _WORDS and comparison not in ("==", "!="):
            raise InvalidCondition(f"{field} is compared with == or !=, not with {comparison}")
        if field in _WORDS and value not in _WORDS[field]:
            raise InvalidCondition(f"{value!r} is no {field}; allowed: {', '.join(_WORDS[field])}")
        return cls(field, comparison, value)

    def holds(self, facts: Mapping[str, Any]) -> bool:
        """Whether it holds for a finding; what is not known of the finding holds for nothing."""
        known = facts.get(self.field)
        if known is None:
            return False
        read = _READ[self.field]
        value = read(known)
        return value is not None and _COMPARISONS[self.comparison](value, read(self.value))

    def __str__(self) -> str:
        return f"{self.field} {self.comparison} {self.value}"


@dataclass(frozen=True)
class Condition:
    """Comparisons that have to hold together."""

    clauses: tuple[Clause, ...]

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Read a condition.

        Raises:
            InvalidCondition: what is wrong and what is allowed.
        """
        if len(text) > _LONGEST:
            raise InvalidCondition(f"a condition has at most {_LONGEST} characters, as in '{_EXAMPLE}'")
        return cls(tuple(Clause.parse(clause) for clause in re.split(r"\band\b", text)))

    @property
    def contradictory(self) -> bool:
        """Whether there is nothing for which it holds: no value of a field does for all that is said of it."""
        fields = {clause.field for clause in self.clauses}
        return not all(self._can_hold(field) for field in fields)

    def _can_hold(self, field: str) -> bool:
        clauses = [clause for clause in self.clauses if clause.field == field]
        # Between the values that are named all comparisons stay as they are: one of each gap will do.
        tried: set[Any] = set(_WORDS.get(field, ()))
        for value in (clause.value for clause in clauses):
            if field in _NUMBERS:
                tried |= {1, *(number for number in (int(value), int(value) + 1) if number > 0)}
            elif (version := _version(value)) is not None and field in _VERSIONS:
                tried |= {"0.0.1.dev0", value, _just_above(version)}
        return any(all(clause.holds({field: value}) for clause in clauses) for value in tried)

    def holds(self, facts: Mapping[str, Any]) -> bool:
        return all(clause.holds(facts) for clause in self.clauses)

    def __str__(self) -> str:
        """The expression, from which `parse` makes the very same condition."""
        return " and ".join(map(str, self.clauses))


class Waiver(BaseModel):
    """A known fault of the release under test."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: FindingKind = Field(description="Kind of finding.")
    when: str = Field(
        description=f"Which of them: comparisons joined by `and`, as in `{_EXAMPLE}`; fields: {', '.join(_FIELDS)}."
    )
    reason: str = Field(min_length=1, max_length=500, description="Why it is borne.")
    link: str = Field(max_length=500, description="Where it is known: an http or https address, such as an issue's.")

    @field_validator("when")
    @classmethod
    def _is_condition(cls, value: str) -> str:
        condition = Condition.parse(value)
        if condition.contradictory:
            raise InvalidCondition(f"'{condition}' can never hold, since its comparisons contradict each other")
        return str(condition)

    @field_validator("link")
    @classmethod
    def _is_address(cls, value: str) -> str:
        if not re.fullmatch(r"https?://\S+", value):
            raise ValueError("no address; write one that begins with http:// or https://")
        return value

    @field_validator("reason")
    @classmethod
    def _is_said(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("nothing but blanks; write why it is borne")
        return value

    def covers(self, kind: FindingKind, facts: Mapping[str, Any]) -> bool:
        """Whether a finding is the fault that is known."""
        return kind is self.kind and Condition.parse(self.when).holds(facts)


def _version(text: str) -> Version | None:
    """A release as PyPI orders them, without the mark of a local build.

    None for what tells no release: a branch, or the `0.0.0.dev1+gabc` that builds without a tag have.
    """
    try:
        version = Version(Version(text).public)
    except InvalidVersion:
        return None
    return version if any(version.release) else None


def _just_above(version: Version) -> str:
    """A version with hardly any between the two."""
    text = str(version)
    if version.dev is not None:
        return f"{text.rpartition('.dev')[0]}.dev{version.dev + 1}"
    if version.post is not None:
        return f"{text.rpartition('.post')[0]}.post{version.post + 1}.dev0"
    return f"{text}.post0.dev0"


_READ: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(_NUMBERS, int),
    **dict.fromkeys(_WORDS, str),
    **dict.fromkeys(_VERSIONS, _version),
}
