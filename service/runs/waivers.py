"""Waivers as data: findings that are known faults of the release under test, written as `prompt_tokens > 3967`. Pure.

A waived finding is counted and shown, and does not fail the run.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from loadgen.findings import FindingKind

_NUMBERS = ("prompt_tokens", "max_new_tokens", "page_size", "pool_pages")
_TEXTS = ("scenario", "allocator", "profile")
_VERSIONS = ("release",)
_FIELDS = (*_NUMBERS, *_TEXTS, *_VERSIONS)
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
_VERSION = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9}){0,5}")


class InvalidCondition(ValueError):
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
        if field not in _FIELDS:
            raise InvalidCondition(f"unknown field {field!r} in {text.strip()!r}; allowed: {', '.join(_FIELDS)}")
        if field in _NUMBERS and not _NUMBER.fullmatch(value):
            raise InvalidCondition(f"{field} is compared with a whole number, not with {value!r}")
        if field in _VERSIONS and not _VERSION.fullmatch(value):
            raise InvalidCondition(f"{field} is compared with a version such as 0.5.23, not with {value!r}")
        if field in _TEXTS and comparison not in ("==", "!="):
            raise InvalidCondition(f"{field} is compared with == or !=, not with {comparison}")
        return cls(field, comparison, value)

    def holds(self, facts: Mapping[str, Any]) -> bool:
        """Whether it holds for a finding; what is not known of the finding holds for nothing."""
        known = facts.get(self.field)
        if known is None:
            return False
        read = _version if self.field in _VERSIONS else int if self.field in _NUMBERS else str
        return _COMPARISONS[self.comparison](read(known), read(self.value))

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
    link: str = Field(
        max_length=500, pattern=r"^https?://\S+$", description="Where it is known, such as an issue's address."
    )

    @field_validator("when")
    @classmethod
    def _is_condition(cls, value: str) -> str:
        return str(Condition.parse(value))

    def covers(self, kind: FindingKind, facts: Mapping[str, Any]) -> bool:
        """Whether a finding is the fault that is known."""
        return kind is self.kind and Condition.parse(self.when).holds(facts)


def _version(text: str) -> tuple[int, ...]:
    """A version's numbers; what follows them, as in `0.5.23.post1`, is left out, and so are zeros at the end."""
    match = _VERSION.match(text)
    numbers = [int(part) for part in match[0].split(".")] if match else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)
