"""Conditions as data: `FIELD COMPARISON VALUE`, several joined by `and`. Thresholds and waivers are made of them. Pure.

A `Language` says which fields there are, of which kind each is (`service.spec.kinds`), and how a fault speaks of them.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.spec.kinds import COMPARISONS, InvalidCondition, Kind, NotOfThisForm, Place

__all__ = ["Clause", "Condition", "InvalidCondition", "Language", "can_hold"]

_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_CLAUSE = re.compile(rf"([a-z0-9_.]+)\s*({'|'.join(COMPARISONS)})\s*(\S+(?:\s+%)?)")
_QUOTED = re.compile(r"""(["'])([^"']*)\1""")


@dataclass(frozen=True)
class Clause:
    """One comparison of a field with a value, such as `prompt_tokens > 3967`."""

    field: str
    comparison: str
    value: Any
    kind: Kind

    def holds(self, fact: Any) -> bool:
        """Whether it holds for what is known of the field; what tells nothing holds for nothing."""
        known = self.kind.value_of(fact)
        return known is not None and _COMPARE[self.comparison](known, self.value)

    def __str__(self) -> str:
        """The expression, from which the very same comparison is read."""
        return f"{self.field} {self.comparison} {self.kind.write(self.value)}"


@dataclass(frozen=True)
class Condition:
    """Comparisons that have to hold together."""

    clauses: tuple[Clause, ...]

    @property
    def contradictory(self) -> bool:
        """Whether there is nothing for which it holds."""
        return not can_hold(self.clauses)

    def holds(self, facts: Mapping[str, Any]) -> bool:
        """Whether it holds for something with these fields; a field that is not known of it holds for nothing."""
        known = ((clause, facts.get(clause.field)) for clause in self.clauses)
        return all(fact is not None and clause.holds(fact) for clause, fact in known)

    def __str__(self) -> str:
        """The expression, from which the very same condition is read."""
        return " and ".join(map(str, self.clauses))


def can_hold(clauses: Iterable[Clause]) -> bool:
    """Whether each field can have a value for which all comparisons with it hold."""
    by_field: dict[str, list[Clause]] = {}
    for clause in clauses:
        by_field.setdefault(clause.field, []).append(clause)
    return all(map(_some_value_meets, by_field.values()))


def _some_value_meets(clauses: Sequence[Clause]) -> bool:
    """Whether one of the values that their field can have meets all of them."""
    samples = clauses[0].kind.samples([clause.value for clause in clauses])
    return any(all(_COMPARE[clause.comparison](value, clause.value) for clause in clauses) for value in samples)


@dataclass(frozen=True)
class Language:
    """What conditions may be made of.

    Attributes:
        kind_of: the kind of the field of that name; None when there is no such field.
        allowed: the names of all fields, as a fault about an unknown one tells them.
        field: what a field is called, such as `measure`.
        clause: what a comparison is called, such as `threshold`.
        form: how one is written.
        example: one that is right.
        longest: characters of a text at most.
    """

    kind_of: Callable[[str], Kind | None]
    allowed: str
    field: str
    clause: str
    form: str
    example: str
    longest: int

    def condition(self, text: str) -> Condition:
        """Read comparisons joined by `and`.

        Raises:
            InvalidCondition: what is wrong and what is allowed.
        """
        self._check_length(text, "condition")
        return Condition(tuple(map(self._read, re.split(r"\band\b", text))))

    def comparison(self, text: str) -> Clause:
        """Read a single comparison.

        Raises:
            InvalidCondition: what is wrong and what is allowed.
        """
        self._check_length(text, self.clause)
        return self._read(text)

    def _check_length(self, text: str, called: str) -> None:
        if len(text) > self.longest:
            raise InvalidCondition(
                f"a {called} has at most {self.longest} characters, as in '{self.example}'; this one has {len(text)}"
            )

    def _read(self, text: str) -> Clause:
        text = text.strip()
        match = _CLAUSE.fullmatch(text)
        if match is None:
            raise InvalidCondition(self._not_of_the_form(text))
        name, comparison, value = match[1], match[2], _QUOTED.sub(r"\2", match[3])
        kind = self.kind_of(name)
        if kind is None:
            raise InvalidCondition(f"unknown {self.field} {name!r} in {text!r}; allowed: {self.allowed}")
        if comparison not in kind.comparisons:
            raise InvalidCondition(f"{name} is compared with {' or '.join(kind.comparisons)}, not with {comparison}")
        try:
            return Clause(name, comparison, kind.read(value, Place(name, text)), kind)
        except NotOfThisForm:
            raise InvalidCondition(self._not_of_the_form(text)) from None

    def _not_of_the_form(self, text: str) -> str:
        return (
            f"{text!r} is no {self.clause}; write {self.form}, as in '{self.example}', "
            f"with one of {' '.join(COMPARISONS)}"
        )
