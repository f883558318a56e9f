"""Measures from what the recorder and the driver counted."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from loadgen.driver import Tally
from loadgen.scenarios import Restarts
from loadgen.statistics.histogram import Counts
from service.execution.recording import Recording
from service.plugin.measures import RECORDED
from service.runs.coverage import EdgeCoverage, edge_coverage
from service.runs.model import Latencies, Measures, Percentiles

_FAILURES_TOLD = 20
_SURPLUSES_TOLD = 32


def measures_of(
    recording: Recording,
    tally: Tally,
    ready_ns: int,
    seconds_under_load: float,
    restarts: Restarts,
    *,
    cells: bool = False,
) -> Measures:
    """A run's measures so far.

    Args:
        ready_ns: when the load could begin, by the recorder's clock.
        restarts: when and why the scenario began anew.
        cells: with every single cell of the edge that was hit, and every surplus of pages, of which there may be as
            many as pages: too much to tell twice a second, and to keep of each time that it was told.
    """
    totals = recording.totals()
    first_critical_ns = recording.first_critical_ns
    return Measures(
        **{each.name: getattr(totals, each.name) for each in RECORDED},
        steps_before_load=recording.steps_before,
        load_restarts=sum(restarts.causes.values()),
        restart_reasons=dict(restarts.causes),
        coverage=_coverage(recording, cells),
        surplus=_surplus(recording.surplus, cells),
        failures=dict(tally.failures.most_common(_FAILURES_TOLD)),
        requests={outcome.value: count for outcome, count in sorted(tally.outcomes.items())},
        latencies=_latencies(tally),
        seconds_under_load=seconds_under_load,
        ready_to_first_critical_seconds=None if first_critical_ns is None else (first_critical_ns - ready_ns) / 1e9,
    )


def _surplus(steps: Mapping[int, int], whole: bool) -> dict[str, int]:
    """Crossing steps by surplus; those nearest to tight, or all."""
    shown = sorted(steps, key=abs)[: None if whole else _SURPLUSES_TOLD]
    return {str(surplus): steps[surplus] for surplus in sorted(shown)}


def histograms_of(recording: Recording, tally: Tally) -> dict[str, Counts]:
    """Distributions so far, by the name of the metric that shows them."""
    return {
        "crossing_free_pages": recording.free_pages.counts(),
        "crossing_surplus_pages": recording.surplus_pages.counts(),
        "crossing_needed_pages": recording.needed_pages.counts(),
        "ttft_seconds": tally.ttft.counts(),
        "itl_seconds": tally.itl.counts(),
        "e2e_seconds": tally.e2e.counts(),
    }


def _coverage(recording: Recording, cells: bool) -> EdgeCoverage | None:
    if recording.coverage is None or recording.server is None:
        return None
    return edge_coverage(recording.coverage, recording.server, cells=cells)


def _latencies(tally: Tally) -> Latencies | None:
    if not tally.first_token_seconds:
        return None
    return Latencies(ttft_ms=percentiles(tally.first_token_seconds), e2e_ms=percentiles(tally.seconds))


def percentiles(seconds: Collection[float]) -> Percentiles:
    """Percentiles of at least one time, by the nearest rank; in milliseconds."""
    ordered = sorted(seconds)

    def at(share: float) -> float:
        return 1000 * ordered[math.ceil(share * len(ordered)) - 1]

    return Percentiles(p50=at(0.5), p90=at(0.9), p99=at(0.99), max=1000 * ordered[-1])
