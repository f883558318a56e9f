"""Carries a run out on a real engine: launch, load, watch, stop, and what was measured on the way."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any, NoReturn

import anyio
import anyio.to_thread

from loadgen.driver import Driver, Tally
from loadgen.http.client import GenerateClient
from loadgen.requests.outcome import RequestOutcome
from loadgen.requests.prompts import PromptMaker
from loadgen.requests.wave import SentWave
from loadgen.scenarios import Scenario
from service.concurrency import first_of
from service.engine.process.process import EngineNotStarted, EngineProcess, EngineSurvived
from service.engine.process.readiness import EngineNotReady, Ready, wait_ready
from service.execution.aftermath import let_it_speak, survival
from service.execution.evidence import STEPS_KEPT, SentWaves, describe_crash, unkillable, write_steps
from service.execution.inspection import Inspection
from service.execution.kernel_log import oom_kills
from service.execution.launching import client_of, plan_for
from service.execution.measuring import histograms_of, measures_of
from service.execution.preflight import Prepared, prepare
from service.execution.recording import Recording
from service.execution.repro import keep_repro
from service.execution.watch import Alarm, Watch
from service.home import Home
from service.runs.executor import RunObserver
from service.runs.model import Crash, EngineInfo, EngineRules, Finding, Measures, Progress, Run, RunResult, RunStatus
from service.runs.server_info import ServerInfo
from service.spec.faults import Fault
from service.spec.spec import RunSpec

_PROGRESS_SECONDS = 0.5
_SHORTEST_PROGRESS_SECONDS = 0.05


class Supervisor:
    """The real executor."""

    def __init__(self, home: Home) -> None:
        self._home = home

    async def preflight(self, spec: RunSpec) -> list[Fault]:
        _, faults = await anyio.to_thread.run_sync(prepare, spec, self._home)
        return faults

    async def execute(self, run: Run, observer: RunObserver, cancelled: anyio.Event) -> RunResult:
        prepared, faults = await anyio.to_thread.run_sync(prepare, run.spec, self._home)
        if prepared is None:
            return RunResult(status=RunStatus.FAILED_TO_START, detail="; ".join(map(str, faults)))
        return await _RunExecution(run, prepared, observer, cancelled).carry_out()


class _RunExecution:
    """One run, from launch to result."""

    def __init__(self, run: Run, prepared: Prepared, observer: RunObserver, cancelled: anyio.Event) -> None:
        self._run = run
        self._spec = run.spec
        self._prepared = prepared
        self._observer = observer
        self._cancelled = cancelled
        self._seed = run.spec.load.seed or 0
        self._plan = plan_for(self._spec, prepared, run.folder)
        self._clock = self._plan.clock
        self._engine = self._describe_engine()
        self._scenario: Scenario[Any] | None = None
        self._waves = SentWaves()
        self._recording: Recording | None = None
        self._ready: Ready | None = None
        self._ready_at: datetime | None = None
        self._driver: Driver | None = None
        self._inspection: Inspection | None = None
        self._load_began: float | None = None
        self._load_ended: float | None = None
        self._measured: Measures | None = None
        self._crash: Crash | None = None
        self._first_finding: tuple[Finding, list[SentWave]] | None = None
        self._notes: list[str] = []

    async def carry_out(self) -> RunResult:
        await self._observer.status(RunStatus.LAUNCHING)
        await self._observer.engine(self._engine)
        try:
            async with await EngineProcess.start(self._plan) as process:
                ready = await self._until_ready(process)
                if ready is None:
                    return self._result(RunStatus.CANCELLED, "cancelled while the engine was starting")
                await self._under_load(process, ready)
        except (EngineNotStarted, EngineNotReady) as error:
            return self._result(RunStatus.FAILED_TO_START, str(error))
        except EngineSurvived as error:
            # It outlives SIGKILL: whatever else was measured, this is no engine that survived the load.
            self._crash = self._crash or unkillable(str(error))
            self._notes.append(str(error))
        if self._crash is None and self._cancelled.is_set():
            return self._result(RunStatus.CANCELLED, *self._notes)
        return self._result(RunStatus.FINISHED, *self._notes)

    def _describe_engine(self) -> EngineInfo:
        checked, release = self._prepared.check, self._prepared.release
        return EngineInfo(
            name=self._prepared.engine.name,
            profile=checked.profile,
            sglang_version=checked.version or "unknown",
            rules=EngineRules(release=release.release, assumed=release.assumed),
            allocator=self._spec.engine.allocator,
            arguments=self._plan.argv,
            server=ServerInfo.of(self._prepared.server),
            environment=self._prepared.needs.environment,
            clamp=checked.clamp,
            device=checked.npu.name,
            address=f"127.0.0.1:{self._plan.port}",
            simulation=self._prepared.engine.simulation,
        )

    async def _until_ready(self, process: EngineProcess) -> Ready | None:
        """The engine's readiness; None when the run was cancelled before it."""

        async def ready() -> Ready | None:
            return await wait_ready(self._plan, process)

        self._ready = await first_of(ready, self._until_cancelled)
        if self._ready is not None:
            self._ready_at = datetime.now(timezone.utc)
        return self._ready

    async def _under_load(self, process: EngineProcess, ready: Ready) -> None:
        server = self._prepared.server
        self._recording = Recording(self._plan.flight, server)
        facts = self._prepared.facts
        client = client_of(self._plan, self._prepared)
        prompts = PromptMaker(self._seed, range(facts.vocabulary))
        # It may have a long trace to read.
        scenario = self._scenario = await anyio.to_thread.run_sync(
            self._prepared.scenario, server, self._prepared.options, self._seed
        )
        inspection = self._inspection = Inspection(self._spec, self._seed, self._engine, facts, server, client, prompts)
        kills_before = oom_kills()
        alarm: Alarm | None = None
        try:
            alarm = await self._calibrate(inspection, process)
            # What was done so far is not the load's.
            self._recording = Recording(self._plan.flight, server)
            ready = self._ready = ready if alarm else replace(ready, ready_ns=self._clock.now_ns())
            driver = self._driver = Driver(
                scenario,
                client,
                self._recording,
                prompts,
                self._waves.add,
                inspection.begin(self._recording),
                self._clock,
            )
            watch = Watch(
                process, self._recording, lambda: driver.unserved, self._spec.engine.hang_seconds, self._clock
            )
            self._load_began = self._clock.now()
            await self._observer.status(RunStatus.RUNNING)
            alarm = alarm or await self._drive(driver, watch)
            self._end_measuring()
            await self._observer.status(RunStatus.DRAINING)
            # It may have died in the very moment in which the load ended or the run was cancelled.
            alarm = alarm or watch.look()
            if alarm is None and not self._cancelled.is_set():
                alarm = await self._survival(client, watch)
            if alarm is None and not self._cancelled.is_set():
                alarm = await self._compare(inspection, watch)
            if alarm is not None:
                await let_it_speak(process, alarm)
                with contextlib.suppress(EngineSurvived):  # said again when the process is left
                    await process.stop(0)
        finally:
            self._end_measuring()
        await self._tell_findings()
        await self._observer.progress(self._progress(RunStatus.DRAINING))
        if alarm is not None:
            self._crash = describe_crash(alarm, process, self._recording, ready.ready_ns, oom_kills() - kills_before)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._keep_evidence, scenario)
        if self._crash is not None:
            await self._observer.crash(self._crash)

    def _keep_evidence(self, scenario: Scenario[Any]) -> None:
        """Write what shows how it came about. A full disk must not lose what was measured, so it is only noted."""
        folder = self._run.folder
        try:
            self._waves.write(folder, scenario.restarts)
            if self._crash is not None and self._recording is not None:
                write_steps(folder, self._recording.last(STEPS_KEPT))
            if self._crash is not None:
                kept = keep_repro(self._run, self._crash, self._waves.last, self._engine.name, scenario.server)
                self._crash = self._crash.model_copy(update={"evidence": {**self._crash.evidence, **kept}})
            elif self._first_finding is not None:
                finding, sent = self._first_finding
                keep_repro(self._run, finding, sent, self._engine.name, scenario.server)
        except OSError as error:
            self._notes.append(f"evidence could not be written: {error}")

    def _end_measuring(self) -> None:
        """The load has ended; what the engine does from here on, with what was left of it, is not the load's."""
        if self._measured is None and self._recording is not None:
            self._load_ended = self._clock.now()
            self._recording.take()
            self._measured = self._measures(cells=True)

    async def _calibrate(self, inspection: Inspection, process: EngineProcess) -> Alarm | None:
        """Before there is any pressure; an alarm when the engine does not bear even that."""
        watch = Watch(process, self._recording, lambda: 1, self._spec.engine.hang_seconds, self._clock)

        async def alarm() -> Alarm | None:
            return await watch.alarm()

        return await first_of(inspection.calibrate, alarm, self._until_cancelled)

    async def _compare(self, inspection: Inspection, watch: Watch) -> Alarm | None:
        """When the pressure is gone."""

        async def alarm() -> Alarm | None:
            return await watch.alarm()

        return await first_of(inspection.compare, alarm, self._until_cancelled)

    async def _drive(self, driver: Driver, watch: Watch) -> Alarm | None:
        """Make load until that is over, the run is cancelled or the engine is gone, which is what is returned."""

        async def load() -> None:
            await driver.run(self._spec.load.duration, self._covered_enough)

        async def alarm() -> Alarm | None:
            found = await watch.alarm()
            driver.unanswered = RequestOutcome.LOST
            return found

        return await first_of(load, alarm, self._until_cancelled, self._tell_progress)

    def _covered_enough(self) -> bool:
        asked, recording = self._spec.load.until_coverage, self._recording
        if asked is None or recording is None or recording.coverage is None:
            return False
        return recording.coverage.share >= asked

    async def _survival(self, client: GenerateClient, watch: Watch) -> Alarm | None:
        """After the load the server must still complete a request; an alarm when it does not."""

        async def survives() -> Alarm | None:
            return await survival(client, watch, self._spec.engine.hang_seconds, self._clock)

        return await first_of(survives, self._until_cancelled)

    async def _until_cancelled(self) -> None:
        await self._cancelled.wait()

    async def _tell_progress(self) -> NoReturn:
        while True:
            await self._tell_findings()
            await self._observer.progress(self._progress())
            await self._clock.sleep(_PROGRESS_SECONDS, _SHORTEST_PROGRESS_SECONDS)

    async def _tell_findings(self) -> None:
        for finding in self._inspection.new_findings() if self._inspection is not None else ():
            if self._first_finding is None and finding.waived is None:
                self._first_finding = finding, self._waves.last
            await self._observer.finding(finding)

    def _progress(self, status: RunStatus = RunStatus.RUNNING) -> Progress:
        recording, driver = self._recording, self._driver
        last = recording.last_step if recording is not None else None
        return Progress(
            status=status,
            elapsed_seconds=self._seconds_under_load(),
            total_seconds=self._spec.load.duration,
            pool_pages=self._spec.engine.pool_pages,
            free_pages=last.free if last is not None else None,
            measures=self._told(),
            findings=self._inspection.findings if self._inspection is not None else (),
            histograms=histograms_of(recording, driver.tally) if recording and driver else {},
        )

    def _told(self) -> Measures:
        measures = self._measured or self._measures()
        return self._inspection.added_to(measures) if self._inspection is not None else measures

    def _measures(self, *, cells: bool = False) -> Measures:
        if self._recording is None or self._ready is None:
            return Measures()
        return measures_of(
            self._recording,
            self._driver.tally if self._driver is not None else Tally(),
            self._ready.ready_ns,
            self._seconds_under_load(),
            self._scenario.restarts if self._scenario is not None else (),
            cells=cells,
        )

    def _seconds_under_load(self) -> float:
        if self._load_began is None:
            return 0.0
        return (self._load_ended or self._clock.now()) - self._load_began

    def _result(self, status: RunStatus, *notes: str) -> RunResult:
        return RunResult(
            status=status,
            detail="\n".join(notes) or None,
            engine=self._engine,
            ready_at=self._ready_at,
            measures=self._told(),
            crashes=(self._crash,) if self._crash is not None else (),
            findings=self._inspection.findings if self._inspection is not None else (),
        )
