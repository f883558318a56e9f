"""What a measure is, and the counters that the probe and the recorder take. Standard library only.

A counter is described here, as a field of `Counters`, and counted where it happens (`FlightRecorder.count`). All else
follows from the description: its place in the recording and the recording's format, the field of the report, the
threshold, the series of both `/metrics`, the rows of the tables, and docs/measures.md. `service.measures` has these
and every other measure of a run.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, fields, replace
from typing import Any


class MeasureKind(str, enum.Enum):
    """What a measure's value is."""

    COUNT = "count"  # a whole number, 0 or more
    SHARE = "share"  # from 0 to 1
    SECONDS = "seconds"
    MILLISECONDS = "milliseconds"
    COUNTS = "counts by a key"
    DISTRIBUTION = "distribution"  # a histogram, in /metrics only
    DETAILS = "details"  # values of its own model


class Source(str, enum.Enum):
    """Where a measure comes from."""

    RECORDING = "flight recording"
    DRIVER = "load driver"
    CHECKS = "crashes and response checks"
    COMPUTED = "other measures"


class Role(str, enum.Enum):
    """What a broken threshold on a measure says."""

    PLAIN = "plain"  # that the engine did not behave as was asked for
    EDGE = "edge"  # that the edge was not reached often enough: nothing about the engine
    PROOF = "proof"  # the same; and a lower bound on it proves that the pool was exactly exhausted
    BADNESS = "badness"  # that something went wrong: no spec can allow any number of it


class Shown(str, enum.Enum):
    """Whether a count has a row in the table of results."""

    ALWAYS = "always"
    NOT_ZERO = "not zero"
    ELSEWHERE = "elsewhere"  # in a row that is written for it, or in that of another measure


@dataclass(frozen=True)
class Measure:
    """One measure of a run.

    Attributes:
        name: its name in the report and in thresholds; in /metrics it stands between `lastpage_` and `_total`.
        help: what it says, in one sentence.
        unit: what is counted, in the plural; empty for what has none.
        share_of: the measure of which it is a part.
        label: its name in tables; by default its name in words.
        remark: what stands beside it in the table of results; by default its help text.
        shown: whether it has a row in the table of results.
        keys: values that it has under names of their own, which a threshold names after a dot.
        key_kind: what those are.
        by: label of its series in /metrics.
        bounds: upper bounds of a distribution's buckets.
        threshold: whether a threshold may name it, or its keys.
        counted: whether /metrics has it as a counter.
    """

    name: str
    help: str
    unit: str = ""
    kind: MeasureKind = MeasureKind.COUNT
    source: Source = Source.RECORDING
    role: Role = Role.PLAIN
    share_of: str = ""
    label: str = ""
    remark: str = ""
    shown: Shown = Shown.NOT_ZERO
    keys: tuple[str, ...] = ()
    key_kind: MeasureKind = MeasureKind.COUNT
    by: str = ""
    bounds: tuple[float, ...] = ()
    threshold: bool = True
    counted: bool = True

    @property
    def words(self) -> str:
        """Its name in tables."""
        return self.label or self.name.replace("_", " ")

    @property
    def about_edge(self) -> bool:
        """Whether it says how often the edge was reached, rather than how the engine behaved there."""
        return self.role in (Role.EDGE, Role.PROOF)

    @property
    def proves_exhaustion(self) -> bool:
        return self.role is Role.PROOF

    @property
    def is_badness(self) -> bool:
        return self.role is Role.BADNESS


_KEY = "measure"


def _counter(help: str, unit: str, **more: Any) -> Any:
    """A field of `Counters`; see `Measure` for what it takes."""
    return field(default=0, metadata={_KEY: Measure("", help, unit, **more)})


@dataclass(frozen=True, slots=True)
class Counters:
    """What the probe and the recorder count, in the order in which a recording keeps it."""

    decode_steps: int = _counter("Decode steps.", "decode steps", role=Role.EDGE, shown=Shown.ELSEWHERE)
    crossing_steps: int = _counter(
        "Decode steps in which at least one row needed a new page.",
        "decode steps",
        role=Role.EDGE,
        share_of="decode_steps",
        label="crossing",
        shown=Shown.ELSEWHERE,
    )
    tight_steps: int = _counter(
        "Crossing steps that needed exactly as many pages as were free.",
        "decode steps",
        role=Role.PROOF,
        share_of="decode_steps",
        label="tight",
        shown=Shown.ELSEWHERE,
    )
    clamped_steps: int = _counter(
        "Crossing steps with a trailing row, whose index the clamp changes, or would.",
        "decode steps",
        role=Role.EDGE,
        share_of="decode_steps",
        label="clamped",
        shown=Shown.ELSEWHERE,
    )
    critical_steps: int = _counter(
        "Tight and clamped decode steps: without the clamp these read past the free list.",
        "decode steps",
        role=Role.PROOF,
        share_of="decode_steps",
        label="critical",
        shown=Shown.ELSEWHERE,
    )
    prefill_batches: int = _counter("Prefill batches.", "batches", shown=Shown.ELSEWHERE)
    tight_prefill_batches: int = _counter(
        "Prefill batches that needed exactly as many pages as were free.",
        "batches",
        role=Role.EDGE,
        share_of="prefill_batches",
        remark="they took the last free page",
    )
    retractions: int = _counter(
        "Requests that the scheduler retracted for lack of pages.",
        "requests",
        remark="requests",
        shown=Shown.ALWAYS,
    )
    evicted_pages: int = _counter(
        "Pages that the prefix cache gave up.", "pages", remark="pages that the prefix cache gave up"
    )
    shortfalls: int = _counter(
        "Decode steps for which the allocator had too few pages.",
        "decode steps",
        remark="decode steps for which the allocator had too few pages",
    )
    exceptions: int = _counter(
        "Exceptions that came out of the allocator.", "exceptions", remark="they came out of the allocator"
    )


def counters_of(counters: type[Counters]) -> tuple[Measure, ...]:
    """The measures that a class of counters describes, in its order."""
    described = (each for each in fields(counters) if _KEY in each.metadata)
    return tuple(replace(each.metadata[_KEY], name=each.name) for each in described)


RECORDED = counters_of(Counters)
