"""Waivers as data: findings that are known faults of the release under test, written as `prompt_tokens > 3967`. Pure.

A waived finding is counted and shown, and does not fail the run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from loadgen.checks.findings import FindingKind
from loadgen.scenarios import SCENARIOS
from service.plugin.settings import Allocator, Profile
from service.spec.conditions import Condition, InvalidCondition, Language
from service.spec.kinds import Kind, Release, Size, Word

_FIELDS: Mapping[str, Kind] = {
    **dict.fromkeys(("prompt_tokens", "max_new_tokens", "page_size", "pool_pages"), Size()),
    "scenario": Word(tuple(SCENARIOS)),
    "allocator": Word(tuple(allocator.value for allocator in Allocator)),
    "profile": Word(tuple(profile.value for profile in Profile)),
    "release": Release(),
}
_EXAMPLE = "prompt_tokens > 3967 and release == 0.5.23"
_LANGUAGE = Language(
    kind_of=_FIELDS.get,
    allowed=", ".join(_FIELDS),
    field="field",
    clause="comparison",
    form="FIELD COMPARISON VALUE, several joined by `and`",
    example=_EXAMPLE,
    longest=300,
)


def parse_condition(text: str) -> Condition:
    """Which findings are meant, from comparisons of what is known of one.

    Raises:
        InvalidCondition: what is wrong and what is allowed.
    """
    return _LANGUAGE.condition(text)


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
        condition = parse_condition(value)
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
        return kind is self.kind and parse_condition(self.when).holds(facts)
