"""The controller's `/metrics`: totals over all its runs, and how the running one stands.

Counters only grow, whatever an engine's own counters do when it is started again. The series of a run are there while
it runs and end with it, so that a month of runs does not grow what a scrape returns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from service.runs.events import EventType, RunEvent
from service.runs.model import Crash, Measures, Progress, Run, RunStatus, Verdict

_STEP_COUNTERS = {
    "decode_steps": "Decode steps.",
    "crossing_steps": "Decode steps in which at least one row needed a new page.",
    "tight_steps": "Decode steps that needed exactly as many pages as were free.",
    "clamped_steps": "Decode steps in which the clamp changed at least one index.",
    "critical_steps": "Tight and clamped decode steps: without the clamp these read past the free list.",
}


class ControllerMetrics:
    """Counts what is announced. `observe` is a listener of the run manager; the object is a prometheus collector."""

    def __init__(self) -> None:
        self._steps: Counter[str] = Counter()
        self._requests: Counter[str] = Counter()
        self._crashes: Counter[str] = Counter()
        self._runs: Counter[str] = Counter({verdict.value: 0 for verdict in Verdict})
        self._restarts = 0
        self._counted = Measures()
        self._running: Run | None = None
        self._progress: Progress | None = None

    def registry(self) -> CollectorRegistry:
        """A registry with these series and those of the controller's own process."""
        registry = CollectorRegistry()
        registry.register(self)
        ProcessCollector(registry=registry)
        return registry

    def observe(self, event: RunEvent) -> None:
        """Count one event."""
        run = event.run
        if event.type is EventType.STATUS and run.status is not RunStatus.CREATED:
            self._follow(run)
        elif isinstance(event.detail, Progress):
            self._progress = event.detail
            self._count(run.measures)
        elif isinstance(event.detail, Crash):
            self._crashes[event.detail.kind.value] += 1
        elif event.type is EventType.FINISHED:
            self._finish(run)

    def collect(self) -> Iterator[Metric]:
        for name, text in _STEP_COUNTERS.items():
            yield CounterMetricFamily(f"lastpage_{name}", text, value=self._steps[name])
        yield _by_label("lastpage_crashes", "Crashes of engines.", "kind", self._crashes)
        yield CounterMetricFamily("lastpage_engine_restarts", "Engines started again in a run.", value=self._restarts)
        yield _by_label("lastpage_requests", "Requests that have ended.", "outcome", self._requests)
        yield _by_label("lastpage_runs", "Runs that have ended.", "verdict", self._runs)
        if self._running is not None:
            yield _run_info(self._running)
        if self._progress is not None:
            yield from _pool(self._progress)

    def _follow(self, run: Run) -> None:
        if self._running is None or self._running.id != run.id:
            self._counted, self._progress = Measures(), None
        elif run.status is RunStatus.LAUNCHING and self._running.status is RunStatus.RUNNING:
            self._restarts += 1
        self._running = run

    def _finish(self, run: Run) -> None:
        self._runs[(run.verdict or Verdict.INCONCLUSIVE).value] += 1
        if self._running is not None and self._running.id == run.id:
            self._count(run.measures)
            self._running = self._progress = None

    def _count(self, measures: Measures) -> None:
        """Add what has been measured in the running run since it was last counted."""
        for name in _STEP_COUNTERS:
            self._steps[name] += max(0, getattr(measures, name) - getattr(self._counted, name))
        for outcome, count in measures.requests.items():
            self._requests[outcome] += max(0, count - self._counted.requests.get(outcome, 0))
        self._counted = measures


def _by_label(name: str, text: str, label: str, counts: Counter[str]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for value, count in sorted(counts.items()):
        family.add_metric([value], count)
    return family


def _run_info(run: Run) -> Metric:
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


def _pool(progress: Progress) -> Iterator[Metric]:
    yield GaugeMetricFamily("lastpage_pool_pages", "Pages in the KV pool.", value=progress.pool_pages)
    if progress.free_pages is not None:
        free, pages = progress.free_pages, progress.pool_pages
        yield GaugeMetricFamily("lastpage_pool_free_pages", "Free pages at the last decode step.", value=free)
        occupancy = 1 - free / pages if pages else 0.0
        yield GaugeMetricFamily("lastpage_pool_occupancy_ratio", "Pages in use, of all pages.", value=occupancy)
