"""An executor without an engine, for tests of everything that stands around one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone

import anyio

from loadgen.checks.findings import FindingKind
from service.engine.crash.crash import Crash
from service.engine.crash.signatures import CrashKind
from service.execution.ledger import counts
from service.plugin.settings import Allocator, Profile
from service.runs.executor import RunObserver
from service.runs.model import EngineInfo, Finding, Measures, Progress, Run, RunResult, RunStatus
from service.spec.faults import Fault, InvalidSpec
from service.spec.spec import RunSpec

ENGINE = EngineInfo(
    name="fake",
    profile=Profile.REHEARSAL,
    sglang_version="0.5.23",
    allocator=Allocator.INSTALLED,
    arguments=("--page-size", "128"),
    address="127.0.0.1:30000",
)
AT_THE_EDGE = Measures(
    decode_steps=1000,
    crossing_steps=980,
    tight_steps=950,
    clamped_steps=940,
    critical_steps=900,
    requests={"done": 400, "cancelled": 3},
    surplus={"0": 950, "1": 30},
    seconds_under_load=2.0,
    ready_to_first_critical_seconds=0.4,
)
CRASH = Crash(
    kind=CrashKind.OOB_INDEX,
    reason="IndexError: index 1 is out of bounds for dimension 0 with size 1",
    at=datetime(2026, 11, 30, tzinfo=timezone.utc),
    step=17,
    seconds_after_ready=0.5,
    noticed_after_seconds=0.1,
    evidence={"log": "engine.log", "flight": "flight.bin"},
)
FINDING = Finding(
    kind=FindingKind.WRONG_OUTPUT,
    cause="two witnesses of one prompt disagree",
    detail="two witnesses of one prompt differ at token 3",
    at=datetime(2026, 11, 30, tzinfo=timezone.utc),
    last_at=datetime(2026, 11, 30, 0, 1, tzinfo=timezone.utc),
    elapsed_seconds=1.5,
    prompt_tokens=125,
    max_new_tokens=9,
    shortest_prompt_tokens=60,
    longest_prompt_tokens=125,
    count=2,
)
WAIVED = FINDING.model_copy(
    update={"kind": FindingKind.STARVED, "waived": "known of this release", "link": "https://example.org/1", "count": 5}
)


class FakeExecutor:
    """Goes through a run's life at once, or stays at one status until told to go on.

    Attributes:
        faults: what preflight finds.
        executed: ids of the runs carried out, in order.
    """

    def __init__(
        self,
        *,
        measures: Measures = AT_THE_EDGE,
        crash: Crash | None = None,
        hold_at: RunStatus | None = None,
        deaf: bool = False,
        fails: Callable[[], Exception] | None = None,
        starts: bool = True,
        progress_events: int = 2,
        engine: EngineInfo = ENGINE,
        findings: tuple[Finding, ...] = (),
    ) -> None:
        """
        Args:
            hold_at: stay there until `release` is set or the run shall stop.
            deaf: pay no heed to the wish that the run stop.
            fails: makes an exception to raise once the run is running.
            starts: False is an engine that cannot be started.
        """
        self.faults: list[Fault] = []
        self.executed: list[str] = []
        self.running_at_once = 0
        self.release = anyio.Event()
        self.holding = anyio.Event()
        self._measures = measures.model_copy(update=counts(findings))
        self._findings = findings
        self._crash = crash
        self._hold_at = hold_at
        self._deaf = deaf
        self._fails = fails
        self._starts = starts
        self._progress_events = progress_events
        self._engine = engine

    async def preflight(self, spec: RunSpec) -> FakeExecutor:
        await anyio.lowlevel.checkpoint()
        if faults := [fault for fault in self.faults if fault.value in (None, spec.load.scenario)]:
            raise InvalidSpec(faults)
        return self

    async def execute(self, run: Run, observer: RunObserver, cancelled: anyio.Event) -> RunResult:
        self.executed.append(run.id)
        self.running_at_once += 1
        assert self.running_at_once == 1, "two runs on one device"
        assert run.folder.is_dir()
        try:
            return await self._execute(observer, cancelled)
        finally:
            self.running_at_once -= 1

    async def _execute(self, observer: RunObserver, cancelled: anyio.Event) -> RunResult:
        if await self._enter(RunStatus.LAUNCHING, observer, cancelled):
            return RunResult(status=RunStatus.CANCELLED)
        if not self._starts:
            return RunResult(status=RunStatus.FAILED_TO_START, detail="the log ends with: no module named sglang")
        await observer.engine(self._engine)
        stopped = await self._enter(RunStatus.RUNNING, observer, cancelled)
        if self._fails is not None:
            raise self._fails()
        for count in range(1, self._progress_events + 1):
            await observer.progress(self._progress(count))
        for finding in self._findings:
            await observer.finding(finding)
        if self._crash is not None:
            await observer.crash(self._crash)
            return self._result(RunStatus.FINISHED, (self._crash,))
        stopped = stopped or await self._enter(RunStatus.DRAINING, observer, cancelled)
        return self._result(RunStatus.CANCELLED if stopped else RunStatus.FINISHED)

    async def _enter(self, status: RunStatus, observer: RunObserver, cancelled: anyio.Event) -> bool:
        """Take the next step; True when the run shall stop there."""
        await observer.status(status, None)
        if status is self._hold_at:
            self.holding.set()
            await _first_of(self.release, *([] if self._deaf else [cancelled]))
        return cancelled.is_set() and not self._deaf

    def _progress(self, count: int) -> Progress:
        part = count / self._progress_events
        steps = {name: int(value * part) for name, value in self._measures if isinstance(value, int)}
        return Progress(
            status=RunStatus.RUNNING,
            elapsed_seconds=part,
            total_seconds=1.0,
            pool_pages=32,
            free_pages=1,
            measures=self._measures.model_copy(update=steps),
        )

    def _result(self, status: RunStatus, crashes: tuple[Crash, ...] = ()) -> RunResult:
        ready_at = datetime.now(timezone.utc)
        return RunResult(
            status=status,
            engine=self._engine,
            ready_at=ready_at,
            measures=self._measures,
            crashes=crashes,
            findings=self._findings,
        )


async def _first_of(*events: anyio.Event) -> None:
    async with anyio.create_task_group() as group:

        async def wait(event: anyio.Event) -> None:
            await event.wait()
            group.cancel_scope.cancel()

        for event in events:
            group.start_soon(wait, event)
