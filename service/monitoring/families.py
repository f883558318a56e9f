"""Prometheus families from plain counts (pure). What they are called and say stands in `series`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.utils import floatToGoString

from loadgen.statistics.histogram import Counts
from service.monitoring.series import SERIES, SeriesKind
from service.runs.coverage import EdgeCoverage
from service.runs.model import Progress, Run

_FAMILIES: dict[SeriesKind, type[CounterMetricFamily] | type[GaugeMetricFamily]] = {
    SeriesKind.COUNTER: CounterMetricFamily,
    SeriesKind.GAUGE: GaugeMetricFamily,
}


def single(name: str, value: float) -> Metric:
    """A counter or gauge without labels."""
    series = SERIES[name]
    return _FAMILIES[series.kind](series.family, series.help, value=value)


def labelled(name: str, values: Mapping[tuple[str, ...], float]) -> Metric:
    """A counter or gauge with labels. The keys of `values` are label values, in the order of the series' labels."""
    series = SERIES[name]
    family = _FAMILIES[series.kind](series.family, series.help, labels=series.labels)
    for labels, value in sorted(values.items()):
        family.add_metric(labels, value)
    return family


def histogram(name: str, counts: Counts) -> Metric:
    """A classic histogram. One with bounds below zero has no sum, as the exposition format asks."""
    series = SERIES[name]
    family = HistogramMetricFamily(series.family, series.help)
    bounds = [*map(floatToGoString, counts.bounds), "+Inf"]
    buckets = list(zip(bounds, itertools.accumulate(counts.counts), strict=True))
    family.add_metric([], buckets, counts.total)
    return family


def run_info(run: Run) -> Metric:
    """What runs, as labels to join with."""
    engine = run.engine
    series = SERIES["run"]
    values = (
        run.id,
        run.spec.load.scenario,
        engine.name if engine else run.spec.engine.name or "",
        engine.sglang_version if engine else "",
        (engine.allocator if engine else run.spec.engine.allocator).value,
        engine.profile.value if engine else "",
    )
    info = InfoMetricFamily(series.family, series.help)
    info.add_metric([], dict(zip(series.labels, values, strict=True)))
    return info


def run_progress(progress: Progress) -> Iterator[Metric]:
    """How the run stands: its load and its pool."""
    yield single("run_load_seconds", progress.elapsed_seconds)
    yield single("run_planned_load_seconds", progress.total_seconds)
    yield single("pool_pages", progress.pool_pages)
    if progress.free_pages is not None:
        free, pages = progress.free_pages, progress.pool_pages
        yield single("pool_free_pages", free)
        yield single("pool_occupancy_ratio", 1 - free / pages if pages else 0.0)
    if progress.measures.coverage is not None:
        yield from run_coverage(progress.measures.coverage)


def run_coverage(coverage: EdgeCoverage) -> Iterator[Metric]:
    """How much of the edge the run has been through."""
    yield single("coverage_ratio", coverage.share)
    cells: dict[tuple[str, ...], float] = {}
    for after, share in coverage.after.items():
        cells[after, "hit"] = share.hit
        cells[after, "missing"] = share.reachable - share.hit
    cells["", "unforeseen"] = coverage.unforeseen
    yield labelled("coverage_cells", cells)
