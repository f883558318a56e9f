"""Claims about the controller's metrics."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

from service.metrics import ControllerMetrics
from service.runs.events import EventType, RunEvent
from service.runs.model import Crash, Measures, Progress, Run, RunStatus, Verdict
from service.runs.spec import RunSpec
from tests.fake_executor import CRASH, ENGINE

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

    def tell(self, type: EventType, detail: Progress | Crash | None = None, **changes: object) -> None:
        self.run = self.run.model_copy(update=changes)
        self.metrics.observe(RunEvent(1, type, NOW, self.run, detail))

    def status(self, status: RunStatus) -> None:
        self.tell(EventType.STATUS, status=status)

    def progress(self, steps: int, **requests: int) -> None:
        measures = Measures(decode_steps=steps, critical_steps=steps // 2, requests=requests)
        progress = Progress(
            status=RunStatus.RUNNING, elapsed_seconds=1, total_seconds=2, pool_pages=32, free_pages=8, measures=measures
        )
        self.tell(EventType.PROGRESS, progress, measures=measures)

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


def test_an_engine_that_starts_again_does_not_take_counters_back() -> None:
    feed = Feed()
    for status in (RunStatus.LAUNCHING, RunStatus.RUNNING):
        feed.status(status)
    feed.progress(100)
    feed.tell(EventType.CRASH, CRASH)
    feed.status(RunStatus.LAUNCHING)
    feed.progress(10)
    assert feed.value("lastpage_decode_steps_total") == 100
    feed.progress(15)
    assert feed.value("lastpage_decode_steps_total") == 105
    assert feed.value("lastpage_engine_restarts_total") == 1
    assert feed.value("lastpage_crashes_total", kind="oob_index") == 1


def test_the_series_of_a_run_end_with_it() -> None:
    feed = Feed()
    idle = feed.names()
    assert not {name for name in idle if name.startswith(("lastpage_pool", "lastpage_run_info"))}
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
