"""Claims about the controller's metrics."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.checks.findings import FindingKind
from loadgen.coverage import After, Cell, Coverage
from loadgen.sglang.pages import Pool
from loadgen.sglang.server import ServerConfiguration
from loadgen.statistics.histogram import Counts, Histogram
from service.engine.crash.crash import Crash
from service.measures import PAGES, SURPLUS_PAGES
from service.monitoring.metrics import ControllerMetrics
from service.runs.coverage import EdgeCoverage, edge_coverage
from service.runs.events import EventType, RunEvent
from service.runs.model import Finding, Measures, Progress, Run, RunStatus, Verdict
from service.spec.spec import RunSpec
from tests.fake_executor import CRASH, ENGINE, FINDING, WAIVED

NOW = datetime(2026, 11, 30, tzinfo=timezone.utc)


class Feed:
    """Feeds metrics with the events of runs."""

    def __init__(self) -> None:
        self.metrics = ControllerMetrics()
        self.registry = self.metrics.registry()
        self.run = self.new_run("first")

    def new_run(self, run_id: str) -> Run:
        self.run = Run(id=run_id, spec=RunSpec(), folder=Path("/nowhere"), created_at=NOW, engine=ENGINE)
        return self.run

    def tell(self, type: EventType, detail: Progress | Crash | Finding | None = None, **changes: object) -> None:
        self.run = self.run.model_copy(update=changes)
        self.metrics.observe(RunEvent(1, type, NOW, self.run, detail))

    def status(self, status: RunStatus) -> None:
        self.tell(EventType.STATUS, status=status)

    def progress(self, steps: int, histograms: dict[str, Counts] | None = None, **requests: int) -> None:
        measures = Measures(decode_steps=steps, critical_steps=steps // 2, requests=requests, coverage=self.coverage())
        progress = Progress(
            status=RunStatus.RUNNING,
            elapsed_seconds=1,
            total_seconds=2,
            pool_pages=32,
            free_pages=8,
            measures=measures,
            histograms=histograms or {},
        )
        self.tell(EventType.PROGRESS, progress, measures=measures)

    @staticmethod
    def coverage() -> EdgeCoverage:
        server = ServerConfiguration(Pool(128, 4), overlap=False)
        coverage = Coverage(server)
        hit = [cell for cell in coverage.reachable_tight if cell.after is After.PREFILL]
        coverage.add(dict.fromkeys([*hit, Cell.parse("tight 1 1 0 running_rows decode")], 1))
        return edge_coverage(coverage, server, cells=False)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)

    def names(self) -> set[str]:
        return {sample.name for family in self.metrics.collect() for sample in family.samples}


def test_steps_and_requests_are_counted_over_runs_and_never_go_back() -> None:
    feed = Feed()
    feed.status(RunStatus.LAUNCHING)
    feed.progress(100, done=3)
    feed.progress(250, done=7, lost=1)
    assert feed.value("lastpage_decode_steps_total") == 250
    feed.tell(EventType.FINISHED, verdict=Verdict.PASS, measures=Measures(decode_steps=260, requests={"done": 8}))
    assert feed.value("lastpage_decode_steps_total") == 260
    feed.new_run("second")
    feed.status(RunStatus.LAUNCHING)
    feed.progress(40, done=2)
    assert feed.value("lastpage_decode_steps_total") == 300
    assert feed.value("lastpage_requests_total", outcome="done") == 10
    assert feed.value("lastpage_requests_total", outcome="lost") == 1
    assert feed.value("lastpage_runs_total", verdict="pass") == 1
    assert feed.value("lastpage_runs_total", verdict="fail") == 0


def test_a_recording_that_begins_anew_does_not_take_counters_back() -> None:
    feed = Feed()
    for status in (RunStatus.LAUNCHING, RunStatus.RUNNING):
        feed.status(status)
    feed.progress(100)
    feed.tell(EventType.CRASH, CRASH)
    feed.status(RunStatus.LAUNCHING)
    feed.progress(10)
    assert feed.value("lastpage_decode_steps_total") == 110
    feed.progress(15)
    assert feed.value("lastpage_decode_steps_total") == 115
    assert feed.value("lastpage_crashes_total", kind="oob_index") == 1


def test_the_series_of_a_run_end_with_it() -> None:
    feed = Feed()
    feed.status(RunStatus.LAUNCHING)
    feed.tell(EventType.FINISHED, verdict=Verdict.INCONCLUSIVE)
    idle = feed.names()
    feed.new_run("first")
    assert not {name for name in idle if name.startswith(("lastpage_pool", "lastpage_run_"))}
    feed.status(RunStatus.LAUNCHING)
    feed.status(RunStatus.RUNNING)
    feed.progress(1)
    assert feed.value("lastpage_pool_pages") == 32
    assert feed.value("lastpage_pool_free_pages") == 8
    assert feed.value("lastpage_pool_occupancy_ratio") == 0.75
    assert (
        feed.value(
            "lastpage_run_info",
            run_id="first",
            scenario="tight",
            engine="fake",
            sglang_version="0.5.23",
            allocator="installed",
            profile="rehearsal",
        )
        == 1
    )
    feed.tell(EventType.FINISHED, verdict=Verdict.INCONCLUSIVE)
    assert feed.names() == idle


def test_a_run_that_ends_while_it_waits_leaves_the_running_one_alone() -> None:
    feed = Feed()
    feed.status(RunStatus.LAUNCHING)
    feed.progress(5)
    running = feed.run
    feed.new_run("waiting")
    feed.status(RunStatus.CREATED)
    feed.tell(EventType.FINISHED, verdict=Verdict.INCONCLUSIVE)
    assert feed.value("lastpage_pool_pages") == 32
    feed.run = running
    feed.progress(9)
    assert feed.value("lastpage_decode_steps_total") == 9


@pytest.mark.parametrize("status", [RunStatus.CANCELLED, RunStatus.INTERRUPTED])
def test_a_run_that_was_stopped_before_its_turn_is_no_verdict_on_anything(status: RunStatus) -> None:
    feed = Feed()
    feed.run = feed.run.model_copy(update={"engine": None})
    feed.tell(EventType.FINISHED, status=status, verdict=Verdict.INCONCLUSIVE)
    assert feed.value("lastpage_runs_total", verdict="inconclusive") == 0
    feed.new_run("launched")
    feed.status(RunStatus.LAUNCHING)
    feed.tell(EventType.FINISHED, status=status, verdict=Verdict.INCONCLUSIVE, started_at=NOW)
    assert feed.value("lastpage_runs_total", verdict="inconclusive") == 1


def test_a_run_whose_engine_could_not_even_be_launched_is_counted() -> None:
    feed = Feed()
    feed.tell(EventType.FINISHED, status=RunStatus.FAILED_TO_START, verdict=Verdict.INCONCLUSIVE)
    assert feed.value("lastpage_runs_total", verdict="inconclusive") == 1


def pages(bounds: Sequence[float], *values: int) -> Counts:
    histogram = Histogram(bounds)
    for value in values:
        histogram.observe(value)
    return histogram.counts()


def test_free_pages_at_crossing_steps_are_told_apart_near_the_edge() -> None:
    feed = Feed()
    feed.status(RunStatus.LAUNCHING)
    feed.progress(3, {"crossing_free_pages": pages(PAGES, 1, 2, 2)})
    feed.progress(5, {"crossing_free_pages": pages(PAGES, 1, 2, 2, 2, 900)})
    buckets = {le: feed.value("lastpage_crossing_free_pages_bucket", le=le) for le in ("0.0", "1.0", "2.0", "+Inf")}
    assert buckets == {"0.0": 0, "1.0": 1, "2.0": 4, "+Inf": 5}
    assert feed.value("lastpage_crossing_free_pages_sum") == 907


def test_histograms_go_on_over_restarts_and_runs() -> None:
    feed = Feed()
    feed.status(RunStatus.LAUNCHING)
    feed.progress(1, {"crossing_surplus_pages": pages(SURPLUS_PAGES, 0, 0, 1)})
    feed.progress(1, {"crossing_surplus_pages": pages(SURPLUS_PAGES, 0)})  # the engine was started again
    feed.tell(EventType.FINISHED, verdict=Verdict.PASS)
    feed.new_run("second")
    feed.status(RunStatus.LAUNCHING)
    feed.progress(1, {"crossing_surplus_pages": pages(SURPLUS_PAGES, 0, -1)})
    assert feed.value("lastpage_crossing_surplus_pages_bucket", le="-1.0") == 1
    assert feed.value("lastpage_crossing_surplus_pages_bucket", le="0.0") == 5
    assert feed.value("lastpage_crossing_surplus_pages_bucket", le="+Inf") == 6
    assert feed.value("lastpage_crossing_surplus_pages_sum") is None


@given(st.lists(st.tuples(st.integers(0, 99), st.booleans()), max_size=20))
def test_counters_never_go_backwards(told: list[tuple[int, bool]]) -> None:
    feed = Feed()
    before = 0.0
    for number, (steps, ends) in enumerate(told):
        feed.status(RunStatus.LAUNCHING)
        feed.progress(steps, {"crossing_free_pages": pages(PAGES, *range(steps))}, done=steps)
        if ends:
            feed.tell(EventType.FINISHED, verdict=Verdict.PASS)
            feed.new_run(str(number))
        values = [
            feed.value("lastpage_decode_steps_total"),
            feed.value("lastpage_crossing_free_pages_count"),
            feed.value("lastpage_requests_total", outcome="done"),
        ]
        assert values[0] is not None and values == [values[0]] * 3
        assert values[0] >= before
        before = values[0]


def test_known_label_values_are_there_from_the_start() -> None:
    feed = Feed()
    assert feed.value("lastpage_crashes_total", kind="hang") == 0
    assert feed.value("lastpage_findings_total", kind="wrong_output") == 0
    assert feed.value("lastpage_requests_total", outcome="lost") == 0
    assert feed.value("lastpage_last_crash_timestamp_seconds") is None


def test_engines_are_counted_apart() -> None:
    feed = Feed()
    engine = {"engine": "fake", "sglang_version": "0.5.23", "allocator": "installed"}
    feed.status(RunStatus.LAUNCHING)
    assert feed.value("lastpage_engine_crashes_total", **engine) == 0
    assert feed.value("lastpage_engine_runs_total", **engine, verdict="fail") == 0
    feed.tell(EventType.CRASH, CRASH)
    feed.tell(EventType.FINISHED, verdict=Verdict.FAIL)
    assert feed.value("lastpage_engine_crashes_total", **engine) == 1
    assert feed.value("lastpage_engine_runs_total", **engine, verdict="fail") == 1
    assert feed.value("lastpage_last_crash_timestamp_seconds") == CRASH.at.timestamp()


def test_findings_are_counted_by_kind() -> None:
    feed = Feed()
    feed.metrics.found(FindingKind.STARVED)
    assert feed.value("lastpage_findings_total", kind="starved") == 1


def test_findings_of_runs_are_counted_once_and_those_that_are_waived_apart() -> None:
    feed = Feed()
    feed.status(RunStatus.LAUNCHING)
    first = FINDING.model_copy(update={"count": 1})
    feed.tell(EventType.FINDING, first, findings=(first,))
    feed.tell(EventType.PROGRESS, None, findings=(FINDING,))
    feed.tell(EventType.FINDING, WAIVED, findings=(FINDING, WAIVED))
    feed.tell(EventType.FINISHED, verdict=Verdict.FAIL)
    assert feed.value("lastpage_findings_total", kind="wrong_output") == FINDING.count == 2
    assert feed.value("lastpage_findings_total", kind="starved") == 0
    assert feed.value("lastpage_waived_findings_total", kind="starved") == WAIVED.count == 5
    feed.new_run("second")
    feed.status(RunStatus.LAUNCHING)
    feed.tell(EventType.FINDING, first, findings=(first,))
    assert feed.value("lastpage_findings_total", kind="wrong_output") == 3


def test_every_series_has_a_help_text() -> None:
    feed = Feed()
    feed.status(RunStatus.LAUNCHING)
    feed.progress(1)
    for family in feed.metrics.collect():
        assert family.documentation.endswith("."), family.name
        assert family.name.startswith("lastpage_")


def test_coverage_is_told_by_what_came_before_while_its_run_goes_on() -> None:
    feed = Feed()
    told = feed.coverage()
    feed.status(RunStatus.LAUNCHING)
    assert feed.value("lastpage_coverage_ratio") is None
    feed.progress(1)
    assert feed.value("lastpage_coverage_ratio") == told.share > 0
    prefill, decode = told.after["prefill"], told.after["decode"]
    assert feed.value("lastpage_coverage_cells", after="prefill", state="hit") == prefill.hit == prefill.reachable
    assert feed.value("lastpage_coverage_cells", after="decode", state="missing") == decode.reachable
    assert feed.value("lastpage_coverage_cells", after="", state="unforeseen") == 1
    feed.tell(EventType.FINISHED, verdict=Verdict.PASS)
    assert feed.value("lastpage_coverage_ratio") is None
