"""The controller's `/metrics`: totals over all its runs, and how the running one stands.

Counters only grow, whatever an engine's own counters do when it is started again. The series of a run are there while
it runs and end with it, so that a month of runs does not grow what a scrape returns. Every label has few values. Those
known beforehand are there from the start, at zero: Prometheus sees a counter's growth only from its second value on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric

from loadgen.checks.findings import FindingKind
from loadgen.requests.outcome import RequestOutcome
from loadgen.statistics.histogram import Counts, nothing
from service.engine.crash.crash import Crash
from service.engine.crash.signatures import CrashKind
from service.measures import COUNTED, DISTRIBUTIONS
from service.monitoring.families import histogram, labelled, run_info, run_progress, single
from service.runs.events import EventType, RunEvent
from service.runs.model import EngineInfo, Finding, Measures, Progress, Run, RunStatus, Verdict

_Labelled = Counter[tuple[str, ...]]


class ControllerMetrics:
    """Counts what is announced. `observe` is a listener of the run manager; the object is a prometheus collector."""

    def __init__(self) -> None:
        self._totals: Counter[str] = Counter()
        self._histograms = {measure.name: nothing(measure.bounds) for measure in DISTRIBUTIONS}
        self._requests: _Labelled = Counter({(outcome.value,): 0 for outcome in RequestOutcome})
        self._crashes: _Labelled = Counter({(kind.value,): 0 for kind in CrashKind})
        self._findings: _Labelled = Counter({(kind.value,): 0 for kind in FindingKind})
        self._waived: _Labelled = Counter({(kind.value,): 0 for kind in FindingKind})
        self._runs: _Labelled = Counter({(verdict.value,): 0 for verdict in Verdict})
        self._engine_runs: _Labelled = Counter()
        self._engine_crashes: _Labelled = Counter()
        self._last_crash: float | None = None
        self._running: Run | None = None
        self._progress: Progress | None = None
        # What of the running run's engine is in the totals already.
        self._counted = Measures()
        self._counted_findings: Counter[tuple[str, bool]] = Counter()
        self._counted_histograms: Mapping[str, Counts] = {}

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
        elif event.type is EventType.FINDING:
            self._count_findings(run.findings)
        elif isinstance(event.detail, Progress):
            self._progress = event.detail
            self._count_findings(run.findings)
            self._count(run.measures, event.detail.histograms)
        elif isinstance(event.detail, Crash):
            self._crash(run, event.detail)
        elif event.type is EventType.FINISHED and not _never_launched(run):
            self._finish(run)

    def found(self, kind: FindingKind) -> None:
        """Count one finding."""
        self._findings[kind.value,] += 1

    def collect(self) -> Iterator[Metric]:
        for measure in COUNTED:
            yield single(measure.name, self._totals[measure.name])
        for measure in DISTRIBUTIONS:
            yield histogram(measure.name, self._histograms[measure.name])
        yield labelled("requests", self._requests)
        yield labelled("crashes", self._crashes)
        yield labelled("findings", self._findings)
        yield labelled("waived_findings", self._waived)
        yield labelled("runs", self._runs)
        yield labelled("engine_runs", self._engine_runs)
        yield labelled("engine_crashes", self._engine_crashes)
        if self._last_crash is not None:
            yield single("last_crash_timestamp_seconds", self._last_crash)
        if self._running is not None:
            yield run_info(self._running)
        if self._progress is not None:
            yield from run_progress(self._progress)

    def _follow(self, run: Run) -> None:
        if self._running is None or self._running.id != run.id:
            self._progress = None
            self._forget_counted()
        self._running = run
        if run.engine is not None:
            self._know(run.engine)

    def _crash(self, run: Run, crash: Crash) -> None:
        self._crashes[crash.kind.value,] += 1
        self._last_crash = crash.at.timestamp()
        if run.engine is not None:
            self._engine_crashes[_engine_values(run.engine)] += 1

    def _finish(self, run: Run) -> None:
        verdict = (run.verdict or Verdict.INCONCLUSIVE).value
        # Of a simulated engine the marked version tells, below: it is no pass of a release.
        self._runs[verdict,] += not run.simulated
        if run.engine is not None:
            self._know(run.engine)
            self._engine_runs[(*_engine_values(run.engine), verdict)] += 1
        if self._running is not None and self._running.id == run.id:
            self._count(run.measures, {})
            self._count_findings(run.findings)
            self._running = self._progress = None
            self._forget_counted()

    def _know(self, engine: EngineInfo) -> None:
        """Show an engine's counters from the moment it is launched."""
        values = _engine_values(engine)
        self._engine_crashes[values] += 0
        for verdict in Verdict:
            self._engine_runs[(*values, verdict.value)] += 0

    def _forget_counted(self) -> None:
        self._counted, self._counted_histograms = Measures(), {}
        self._counted_findings = Counter()

    def _count_findings(self, findings: Sequence[Finding]) -> None:
        """Add what has been found in the running run since it was last counted."""
        now: Counter[tuple[str, bool]] = Counter()
        for finding in findings:
            now[finding.kind.value, finding.waived is not None] += finding.count
        for (kind, waived), count in now.items():
            counted = self._waived if waived else self._findings
            counted[kind,] += _growth(count, self._counted_findings[kind, waived])
        self._counted_findings = now

    def _count(self, measures: Measures, histograms: Mapping[str, Counts]) -> None:
        """Add what has been measured in the running run since it was last counted."""
        for each in COUNTED:
            self._totals[each.name] += _growth(getattr(measures, each.name), getattr(self._counted, each.name))
        for outcome, count in measures.requests.items():
            self._requests[outcome,] += _growth(count, self._counted.requests.get(outcome, 0))
        self._counted = measures
        for name, counts in histograms.items():
            earlier = self._counted_histograms.get(name, nothing(counts.bounds))
            fresh = counts - earlier
            self._histograms[name] += fresh if min(fresh.counts) >= 0 else counts
        if histograms:
            self._counted_histograms = histograms


def _never_launched(run: Run) -> bool:
    """Whether it was stopped before its turn: it says nothing of any engine, and is counted nowhere."""
    return run.started_at is None and run.status in (RunStatus.CANCELLED, RunStatus.INTERRUPTED)


def _growth(now: int, earlier: int) -> int:
    """What came since the earlier count; less than that means that the engine was started again, and counts from 0."""
    return now - earlier if now >= earlier else now


def _engine_values(engine: EngineInfo) -> tuple[str, ...]:
    return (engine.name, engine.sglang_version, engine.allocator.value)
