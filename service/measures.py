"""The registry: every measure of a run, once. Pure.

What the probe and the recorder count is described where SGLang's process can import it, in `service.plugin.measures`;
all others are described here. Fields of the report, thresholds, series of `/metrics`, tables and docs/measures.md are
made from this, or held against it by a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from loadgen.requests.outcome import RequestOutcome
from loadgen.statistics.histogram import SECONDS
from service.plugin.measures import RECORDED, Measure, MeasureKind, Role, Shown, Source

# A pool may have a million pages. What matters happens among the last few.
PAGES = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256, 1024, 4096, 16384, 65536)
SURPLUS_PAGES = (-64, -16, -8, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 256, 1024)

COVERAGE_SHARE = "coverage.share"
LATENCIES = "latencies."

_OF_THE_RECORDING = (
    Measure(
        "steps_before_load",
        "Decode steps that the engine had made before: its warm-up, and calibration.",
        "decode steps",
        shown=Shown.ELSEWHERE,
        threshold=False,
        counted=False,
    ),
    Measure("surplus", "Crossing steps by free pages minus need.", "decode steps", kind=MeasureKind.COUNTS),
    Measure("coverage", "Cells of the edge that were hit.", "cells", kind=MeasureKind.DETAILS),
    Measure(
        COVERAGE_SHARE,
        "Share of the reachable tight cells that were hit; see [coverage.md](coverage.md).",
        kind=MeasureKind.SHARE,
        role=Role.EDGE,
    ),
    Measure(
        "ready_to_first_critical_seconds",
        "From when the load could begin, the engine being ready and witnesses calibrated, to the first critical step, "
        "by the recorder's clock.",
        kind=MeasureKind.SECONDS,
    ),
)
_OF_THE_DRIVER = (
    Measure(
        "load_restarts",
        "Times that the load began anew: its queue ran dry, or the engine did the unforeseen.",
        "restarts",
        source=Source.DRIVER,
        remark="in plan.jsonl",
        threshold=False,
    ),
    Measure(
        "restart_reasons",
        "Why the load began anew, by how often it did for that reason.",
        "restarts",
        kind=MeasureKind.COUNTS,
        source=Source.DRIVER,
    ),
    Measure(
        "requests",
        "Requests by outcome; only `done` is success.",
        "requests",
        kind=MeasureKind.COUNTS,
        source=Source.DRIVER,
        keys=tuple(outcome.value for outcome in RequestOutcome),
        by="outcome",
    ),
    Measure(
        "failures",
        "What was said of requests that failed, by how often; the most frequent.",
        "requests",
        kind=MeasureKind.COUNTS,
        source=Source.DRIVER,
    ),
    Measure(
        "latencies",
        "Latencies of requests that ended well.",
        kind=MeasureKind.DETAILS,
        source=Source.DRIVER,
        keys=tuple(f"{name}_ms.{each}" for name in ("ttft", "e2e") for each in ("p50", "p90", "p99", "max")),
        key_kind=MeasureKind.MILLISECONDS,
    ),
    Measure(
        "seconds_under_load",
        "Seconds from the first request to the last.",
        kind=MeasureKind.SECONDS,
        source=Source.DRIVER,
    ),
)
_OF_THE_CHECKS = (
    Measure(
        "crashes",
        "Crashes of the engine.",
        "crashes",
        source=Source.CHECKS,
        role=Role.BADNESS,
        by="kind",
        shown=Shown.ELSEWHERE,
    ),
    Measure(
        "findings",
        "What was found wrong beside crashes, without what the spec waives.",
        "findings",
        source=Source.CHECKS,
        role=Role.BADNESS,
        by="kind",
        shown=Shown.ELSEWHERE,
    ),
    Measure(
        "waived_findings",
        "What was found wrong, and is waived by the spec.",
        "findings",
        source=Source.CHECKS,
        by="kind",
        shown=Shown.ELSEWHERE,
    ),
    Measure(
        "witnesses", "Requests whose answers were checked.", "requests", kind=MeasureKind.DETAILS, source=Source.CHECKS
    ),
)


def _computed(name: str, help: str, unit: str = "", **more: object) -> Measure:
    return replace(
        Measure(name, help, unit, source=Source.COMPUTED, shown=Shown.ELSEWHERE, counted=False),
        **more,  # type: ignore[arg-type]
    )


_COMPUTED = (
    _computed("tight_not_critical_steps", "Tight steps without a trailing row.", "decode steps", role=Role.EDGE),
    _computed("crossing_share", "Crossing steps, of decode steps.", kind=MeasureKind.SHARE, role=Role.EDGE),
    _computed("tight_share", "Tight steps, of decode steps.", kind=MeasureKind.SHARE, role=Role.PROOF),
    _computed("critical_share", "Critical steps, of decode steps.", kind=MeasureKind.SHARE, role=Role.PROOF),
    _computed(
        "failed_requests",
        "Requests that neither ended well nor were given up on purpose.",
        "requests",
        role=Role.BADNESS,
    ),
    _computed("closest_over", "Fewest pages left over by a crossing step.", "pages", threshold=False),
    _computed("closest_under", "Fewest pages that a crossing step was short of.", "pages", threshold=False),
)


def _distribution(name: str, help: str, unit: str, bounds: tuple[float, ...], source: Source) -> Measure:
    return Measure(name, help, unit, MeasureKind.DISTRIBUTION, source, bounds=bounds)


_DISTRIBUTIONS = (
    _distribution(
        "crossing_free_pages",
        "Free pages before the allocation of each crossing step.",
        "pages",
        PAGES,
        Source.RECORDING,
    ),
    _distribution(
        "crossing_surplus_pages",
        "Free pages minus needed pages of each crossing step; 0 is tight.",
        "pages",
        SURPLUS_PAGES,
        Source.RECORDING,
    ),
    _distribution("crossing_needed_pages", "Pages that each crossing step needed.", "pages", PAGES, Source.RECORDING),
    _distribution(
        "ttft_seconds",
        "From sending a request to its first token, of requests that ended well.",
        "seconds",
        SECONDS,
        Source.DRIVER,
    ),
    _distribution(
        "itl_seconds", "From one token to the next, of requests that ended well.", "seconds", SECONDS, Source.DRIVER
    ),
    _distribution(
        "e2e_seconds",
        "From sending a request to its end, of requests that ended well; not streamed: as the server tells it.",
        "seconds",
        SECONDS,
        Source.DRIVER,
    ),
)

_ALL = (*RECORDED, *_OF_THE_RECORDING, *_OF_THE_DRIVER, *_OF_THE_CHECKS, *_COMPUTED, *_DISTRIBUTIONS)
MEASURES: Mapping[str, Measure] = {measure.name: measure for measure in _ALL}

DISTRIBUTIONS = _DISTRIBUTIONS

_BOUNDED_KINDS = (MeasureKind.COUNT, MeasureKind.SHARE, MeasureKind.SECONDS)


def _bounded() -> Mapping[str, Measure]:
    plain = [each for each in _ALL if each.threshold and each.kind in _BOUNDED_KINDS]
    of_keys = [
        replace(each, name=f"{each.name}.{key}", kind=each.key_kind, keys=()) for each in _ALL for key in each.keys
    ]
    return {measure.name: measure for measure in (*plain, *of_keys)}


BOUNDED = _bounded()
"""What a threshold may name, keys such as `requests.done` included."""

COUNTED = tuple(
    each
    for each in _ALL
    if each.counted and each.kind is MeasureKind.COUNT and each.source in (Source.RECORDING, Source.DRIVER)
)
"""Counts that `/metrics` has as counters without labels."""
