"""Thresholds as data: bounds on measures, written as `critical_steps >= 100`. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from service.measures import BOUNDED, COVERAGE_SHARE, MEASURES
from service.plugin.measures import MeasureKind
from service.spec.conditions import Clause, InvalidCondition, Language, can_hold
from service.spec.kinds import Count, Fraction, Kind, Number

DEFAULT_MIN_CRITICAL = 100
DEFAULT_THRESHOLDS = (
    "crashes == 0",
    "failed_requests == 0",
    "findings == 0",
    f"critical_steps >= {DEFAULT_MIN_CRITICAL}",
)

_PROOF_MEASURES = sorted(name for name, measure in BOUNDED.items() if measure.proves_exhaustion)
_PLAIN_NAMES = sorted({name for name in BOUNDED if "." not in name} | {COVERAGE_SHARE})
_OUTCOMES = ",".join(MEASURES["requests"].keys)


def _kind_of(measure: str) -> Kind | None:
    if measure not in BOUNDED:
        return None
    kind = BOUNDED[measure].kind
    if kind is MeasureKind.SHARE:
        return Fraction()
    return Count() if kind is MeasureKind.COUNT else Number()


_LANGUAGE = Language(
    kind_of=_kind_of,
    allowed=f"{', '.join(_PLAIN_NAMES)}, requests.{{{_OUTCOMES}}}, latencies.{{ttft,e2e}}_ms.{{p50,p90,p99,max}}",
    field="measure",
    clause="threshold",
    form="MEASURE COMPARISON NUMBER",
    example=f"critical_steps >= {DEFAULT_MIN_CRITICAL}",
    longest=100,
)


@dataclass(frozen=True)
class Threshold:
    """A bound on one measure, such as `critical_steps >= 100`."""

    measure: str
    comparison: str
    bound: float

    @classmethod
    def parse(cls, text: str) -> Threshold:
        """Read an expression; the bound of a share may be a percentage, as in `critical_share >= 80%`.

        Raises:
            InvalidCondition: what is wrong and what is allowed.
        """
        clause = _LANGUAGE.comparison(text)
        return cls(clause.field, clause.comparison, clause.value)

    @property
    def clause(self) -> Clause:
        """The comparison that it is."""
        return Clause(self.measure, self.comparison, self.bound, self.kind)

    @property
    def kind(self) -> Kind:
        """What its measure holds."""
        kind = _kind_of(self.measure)
        assert kind is not None, f"{self.measure} is no measure"
        return kind

    def __str__(self) -> str:
        """The expression, from which `parse` makes the very same threshold."""
        return str(self.clause)

    @property
    def is_edge(self) -> bool:
        """Whether it asks how often the edge was reached, rather than how the engine behaved there."""
        return BOUNDED[self.measure].about_edge

    @property
    def demands_proof(self) -> bool:
        """Whether a run that never exhausted the pool breaks it."""
        return BOUNDED[self.measure].proves_exhaustion and not self.holds(0)

    @property
    def bounds_badness(self) -> bool:
        """Whether it is about something that went wrong, and some amount of that breaks it, none does not."""
        return BOUNDED[self.measure].is_badness and self.holds(0) and not self.holds(math.inf)

    def holds(self, value: float) -> bool:
        return self.clause.holds(value)

    def value_in(self, measures: Mapping[str, Any]) -> float | None:
        """Its measure among a run's; requests of an outcome that never happened are 0, all else absent is None."""
        value: Any = measures
        for name in self.measure.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        if value is None and self.measure.startswith("requests."):
            return 0.0
        return None if value is None else float(value)

    def met_by(self, measures: Mapping[str, Any]) -> bool:
        """Whether it was measured, and holds."""
        value = self.value_in(measures)
        return value is not None and self.holds(value)


def _parse_all(texts: Iterable[str]) -> list[Threshold]:
    """The thresholds that these texts are; of several that are none, each is told.

    Raises:
        InvalidCondition: one cannot be read.
    """
    given: list[Threshold] = []
    wrong: list[str] = []
    for text in texts:
        try:
            given.append(Threshold.parse(text))
        except InvalidCondition as error:
            wrong.append(str(error))
    if wrong:
        raise InvalidCondition("; ".join(wrong))
    return given


def effective_thresholds(texts: Iterable[str], until_coverage: float | None = None) -> list[Threshold]:
    """The thresholds of a run: those given, and the default ones on measures that none of those is about.

    Args:
        until_coverage: the share of the edge's cells that the load was asked to reach: a default, too.

    Raises:
        InvalidCondition: one cannot be read, one would turn a default off without another bound, or together they would
            let a run pass that never exhausted the pool; or one can never hold.
    """
    given = _parse_all(texts)
    for threshold in given:
        if BOUNDED[threshold.measure].is_badness and not threshold.bounds_badness:
            raise InvalidCondition(
                f"'{threshold}' would let any number of {threshold.measure} pass; "
                f"allowed: {threshold.measure} == 0, {threshold.measure} <= N, {threshold.measure} < N"
            )
        if not can_hold([threshold.clause]):
            raise InvalidCondition(f"'{threshold}' can never hold: {threshold.kind.can_be}")
        on_it = [each for each in given if each.measure == threshold.measure]
        if not can_hold(each.clause for each in on_it):
            together = " and ".join(f"'{each}'" for each in on_it)
            raise InvalidCondition(f"{together} can never hold together; give bounds between which there is something")
        if until_coverage is not None and threshold.measure == COVERAGE_SHARE and _forbids(threshold, until_coverage):
            raise InvalidCondition(
                f"'{threshold}' breaks when the load ends as load.until_coverage asks, at {until_coverage:g}; "
                f"allowed: a lower bound, as in {COVERAGE_SHARE} >= {until_coverage:g}"
            )
    # An upper bound does not stand for the coverage that was asked for.
    measures = {each.measure for each in given if each.measure != COVERAGE_SHARE or not each.holds(0)}
    defaults = [Threshold.parse(text) for text in DEFAULT_THRESHOLDS]
    if until_coverage is not None:
        defaults.append(Threshold(COVERAGE_SHARE, ">=", until_coverage))
    thresholds = [threshold for threshold in defaults if threshold.measure not in measures] + given
    if not any(threshold.demands_proof for threshold in thresholds):
        raise InvalidCondition(
            "no threshold is left that a run breaks which never exhausts the pool; "
            f"keep a lower bound above 0 on one of {', '.join(_PROOF_MEASURES)}"
        )
    return thresholds


def _forbids(threshold: Threshold, share: float) -> bool:
    """Whether it is broken when so much is covered, and whatever more is."""
    return not threshold.holds(share) and not threshold.holds(1)
