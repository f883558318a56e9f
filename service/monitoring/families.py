"""Prometheus families from plain counts (pure)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.utils import floatToGoString

from loadgen.statistics.histogram import Counts
from service.runs.coverage import EdgeCoverage
from service.runs.model import Progress, Run


def counters_by(name: str, text: str, labels: Sequence[str], counts: Mapping[tuple[str, ...], float]) -> Metric:
    """A counter with labels. The keys of `counts` are label values, in the order of `labels`."""
    family = CounterMetricFamily(name, text, labels=labels)
    for values, count in sorted(counts.items()):
        family.add_metric(values, count)
    return family


def histogram(name: str, text: str, counts: Counts) -> Metric:
    """A classic histogram. One with bounds below zero has no sum, as the exposition format asks."""
    family = HistogramMetricFamily(name, text)
    bounds = [*map(floatToGoString, counts.bounds), "+Inf"]
    buckets = list(zip(bounds, itertools.accumulate(counts.counts), strict=True))
    family.add_metric([], buckets, counts.total)
    return family


def run_info(run: Run) -> Metric:
    """What runs, as labels to join with."""
    engine = run.engine
    info = InfoMetricFamily("lastpage_run", "The run that has the device now.")
    info.add_metric(
        [],
        {
            "run_id": run.id,
            "scenario": run.spec.load.scenario,
            "engine": engine.name if engine else run.spec.engine.name or "",
            "sglang_version": engine.sglang_version if engine else "",
            "allocator": (engine.allocator if engine else run.spec.engine.allocator).value,
            "profile": engine.profile.value if engine else "",
        },
    )
    return info


def run_progress(progress: Progress) -> Iterator[Metric]:
    """How the run stands: its load and its pool."""
    yield GaugeMetricFamily(
        "lastpage_run_load_seconds", "Time that the run has been under load.", value=progress.elapsed_seconds
    )
    yield GaugeMetricFamily(
        "lastpage_run_planned_load_seconds",
        "Time under load that the run was asked for.",
        value=progress.total_seconds,
    )
    yield GaugeMetricFamily("lastpage_pool_pages", "Pages in the KV pool.", value=progress.pool_pages)
    if progress.free_pages is not None:
        free, pages = progress.free_pages, progress.pool_pages
        yield GaugeMetricFamily("lastpage_pool_free_pages", "Free pages at the last decode step.", value=free)
        occupancy = 1 - free / pages if pages else 0.0
        yield GaugeMetricFamily("lastpage_pool_occupancy_ratio", "Pages in use, of all pages.", value=occupancy)
    if progress.measures.coverage is not None:
        yield from run_coverage(progress.measures.coverage)


def run_coverage(coverage: EdgeCoverage) -> Iterator[Metric]:
    """How much of the edge the run has been through."""
    yield GaugeMetricFamily(
        "lastpage_coverage_ratio", "Tight cells that were hit, of those that can exist on the pool.", coverage.share
    )
    cells = GaugeMetricFamily(
        "lastpage_coverage_cells",
        "Tight cells that can exist, by what comes just before and whether they were hit; cells not foreseen.",
        labels=["after", "state"],
    )
    for after, share in coverage.after.items():
        cells.add_metric([after, "hit"], share.hit)
        cells.add_metric([after, "missing"], share.reachable - share.hit)
    cells.add_metric(["", "unforeseen"], coverage.unforeseen)
    yield cells
