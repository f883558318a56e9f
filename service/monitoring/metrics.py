"""The controller's `/metrics`: totals over all its runs, and how the running one stands.

Counters only grow, whatever an engine's own counters do when it is started again. The series of a run are there while
it runs and end with it, so that a month of runs does not grow what a scrape returns. Every label has few values. Those
known beforehand are there from the start, at zero: Prometheus sees a counter's growth only from its second value on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from loadgen.checks.findings import FindingKind
from loadgen.requests.outcome import RequestOutcome
from loadgen.statistics.histogram import SECONDS, Counts, nothing
from service.engine.crash.crash import Crash
from service.engine.crash.signatures import CrashKind
from service.execution.recording import PAGES, SURPLUS_PAGES
from service.monitoring.families import counters_by, histogram, run_info, run_progress
from service.runs.events import EventType, RunEvent
from service.runs.model import EngineInfo, Finding, Measures, Progress, Run, RunStatus, Verdict

# Measures that are counted on, and the metrics that show them.
_COUNTED = {
    "decode_steps": ("decode_steps", "Decode steps."),
    "crossing_steps": ("crossing_steps", "Decode steps in which at least one row needed a new page."),
    "tight_steps": ("tight_steps", "Decode steps that needed exactly as many pages as were free."),
    "clamped_steps": ("clamped_steps", "Decode steps in which the clamp changed at least one index."),
    "critical_steps": (
        "critical_steps",
        "Tight and clamped decode steps: without the clamp these read past the free list.",
    ),
    "prefill_batches": ("prefill_batches", "Prefill batches."),
    "tight_prefill_batches": (
        "tight_prefill_batches",
        "Prefill batches that needed exactly as many pages as were free.",
    ),
    "evicted_pages": ("evicted_pages", "Pages that the prefix cache gave up."),
    "retractions": ("retractions", "Requests that the scheduler retracted for lack of pages."),
    "shortfalls": ("shortfalls", "Decode steps for which the allocator had too few pages."),
    "load_restarts": ("load_restarts", "Times that a scenario gave up what it had built up, and began anew."),
}
_HISTOGRAMS = {
    "crossing_free_pages": (PAGES, "Free pages before the allocation of each crossing step."),
    "crossing_surplus_pages": (SURPLUS_PAGES, "Free pages minus needed pages of each crossing step; 0 is tight."),
    "crossing_needed_pages": (PAGES, "Pages that each crossing step needed."),
    "ttft_seconds": (SECONDS, "From sending a request to its first token, of requests that ended well."),
    "itl_seconds": (SECONDS, "From one token to the next, of requests that ended well."),
    "e2e_seconds": (
        SECONDS,
        "From sending a request to its end, of requests that ended well; not streamed: as the server tells it.",
    ),
}
_Labelled = Counter[tuple[str, ...]]
_ENGINE_LABELS = ("engine", "sglang_version", "allocator")


class ControllerMetrics:
    """Counts what is announced. `observe` is a listener of the run manager; the object is a prometheus collector."""

    def __init__(self) -> None:
        self._totals: Counter[str] = Counter()
        self._histograms = {name: nothing(bounds) for name, (bounds, _) in _HISTOGRAMS.items()}
        self._requests: _Labelled = Counter({(outcome.value,): 0 for outcome in RequestOutcome})
        self._crashes: _Labelled = Counter({(kind.value,): 0 for kind in CrashKind})
        self._findings: _Labelled = Counter({(kind.value,): 0 for kind in FindingKind})
        self._waived: _Labelled = Counter({(kind.value,): 0 for kind in FindingKind})
        self._runs: _Labelled = Counter({(verdict.value,): 0 for verdict in Verdict})
        self._simulated_runs: _Labelled = Counter({(verdict.value,): 0 for verdict in Verdict})
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
        for measure, (name, text) in _COUNTED.items():
            yield CounterMetricFamily(f"lastpage_{name}", text, value=self._totals[measure])
        for name, (_, text) in _HISTOGRAMS.items():
            yield histogram(f"lastpage_{name}", text, self._histograms[name])
        yield counters_by("lastpage_requests", "Requests that have ended.", ["outcome"], self._requests)
        yield counters_by("lastpage_crashes", "Crashes of engines.", ["kind"], self._crashes)
        yield counters_by("lastpage_findings", "What runs found wrong, beside crashes.", ["kind"], self._findings)
        yield counters_by("lastpage_waived_findings", "Findings that a spec waived.", ["kind"], self._waived)
        yield counters_by(
            "lastpage_runs", "Runs that have ended, without those stopped before their turn.", ["verdict"], self._runs
        )
        yield counters_by(
            "lastpage_simulated_runs",
            "Runs on simulated engines that have ended, which no other counter of runs has.",
            ["verdict"],
            self._simulated_runs,
        )
        yield counters_by(
            "lastpage_engine_runs", "Runs that have ended, by engine.", [*_ENGINE_LABELS, "verdict"], self._engine_runs
        )
        yield counters_by("lastpage_engine_crashes", "Crashes, by engine.", _ENGINE_LABELS, self._engine_crashes)
        if self._last_crash is not None:
            yield GaugeMetricFamily(
                "lastpage_last_crash_timestamp_seconds", "When an engine last crashed, Unix time.", self._last_crash
            )
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
        (self._simulated_runs if run.simulated else self._runs)[verdict,] += 1
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
        for name in _COUNTED:
            self._totals[name] += _growth(getattr(measures, name), getattr(self._counted, name))
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
