"""Carries a run out on a real engine: the life of one run, from what its spec refers to up to its result."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, NoReturn

import anyio
import anyio.to_thread

from loadgen.driver import Driver
from loadgen.requests.wave import SentWave
from loadgen.scenarios import Scenario
from service.engine.crash.crash import Crash
from service.engine.process.process import EngineNotStarted, EngineSurvived
from service.engine.process.readiness import EngineNotReady
from service.execution.evidence import STEPS_KEPT, SentWaves, unkillable, write_steps
from service.execution.inspection import Inspection
from service.execution.launching import engine_info, plan_for
from service.execution.preflight import Prepared, changed_since, prepare
from service.execution.repro import keep_repro
from service.execution.run_progress import RunProgress
from service.execution.session import EngineSession, launched
from service.execution.watch import Alarm
from service.home import Home
from service.runs.executor import PreparedRun, RunObserver
from service.runs.model import Finding, Measures, Run, RunResult, RunStatus
from service.spec.faults import InvalidSpec
from service.spec.spec import RunSpec

_PROGRESS_SECONDS = 0.5
_SHORTEST_PROGRESS_SECONDS = 0.05


class Supervisor:
    """The real executor."""

    def __init__(self, home: Home) -> None:
        self._home = home

    async def preflight(self, spec: RunSpec) -> PreparedRun:
        prepared, faults = await anyio.to_thread.run_sync(prepare, spec, self._home)
        if prepared is None:
            raise InvalidSpec(faults)
        return _EngineRun(prepared)


class _EngineRun:
    """A spec with all that it refers to, ready to be carried out."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared

    async def execute(self, run: Run, observer: RunObserver, cancelled: anyio.Event) -> RunResult:
        # It may have waited for hours.
        if faults := await anyio.to_thread.run_sync(changed_since, run.spec, self._prepared):
            return RunResult(status=RunStatus.FAILED_TO_START, detail="; ".join(map(str, faults)))
        return await _RunExecution(run, self._prepared, observer, cancelled).carry_out()


class _RunExecution:
    """One run, from launch to result."""

    def __init__(self, run: Run, prepared: Prepared, observer: RunObserver, cancelled: anyio.Event) -> None:
        self._run = run
        self._spec = run.spec
        self._prepared = prepared
        self._observer = observer
        self._cancelled = cancelled
        self._plan = plan_for(self._spec, prepared, run.folder)
        self._engine = engine_info(self._spec, prepared, self._plan)
        self._waves = SentWaves()
        self._ready_at: datetime | None = None
        self._progress: RunProgress | None = None
        self._crash: Crash | None = None
        self._first_finding: tuple[Finding, list[SentWave]] | None = None
        self._notes: list[str] = []

    async def carry_out(self) -> RunResult:
        await self._observer.status(RunStatus.LAUNCHING)
        await self._observer.engine(self._engine)
        try:
            async with launched(self._spec, self._prepared, self._plan, self._cancelled.wait) as session:
                if session is None:
                    return self._result(RunStatus.CANCELLED, "cancelled while the engine was starting")
                self._ready_at = datetime.now(timezone.utc)
                await self._use(session)
        except (EngineNotStarted, EngineNotReady) as error:
            return self._result(RunStatus.FAILED_TO_START, str(error))
        except EngineSurvived as error:
            # It outlives SIGKILL: whatever else was measured, this is no engine that survived the load.
            self._crash = self._crash or unkillable(str(error))
            self._notes.append(str(error))
        if self._crash is None and self._cancelled.is_set():
            return self._result(RunStatus.CANCELLED, *self._notes)
        return self._result(RunStatus.FINISHED, *self._notes)

    async def _use(self, session: EngineSession) -> None:
        """Load the engine, see what becomes of it, and keep what shows it."""
        prepared, seed = self._prepared, self._spec.load.seed or 0
        # It may have a long trace to read.
        scenario = await anyio.to_thread.run_sync(prepared.scenario, prepared.server, prepared.options, seed)
        inspection = Inspection(
            self._spec,
            seed,
            self._engine,
            prepared.facts,
            prepared.server,
            session.client,
            session.prompts,
            session.clock,
        )
        progress = self._progress = RunProgress(self._spec, session, scenario, inspection)
        try:
            alarm = await self._under_load(session, scenario, inspection, progress)
            if alarm is not None:
                self._crash = await session.crash_of(alarm)
        finally:
            progress.end()
        await self._tell_findings(inspection)
        await self._observer.progress(progress.snapshot(RunStatus.DRAINING))
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._keep_evidence, session, scenario)
        if self._crash is not None:
            await self._observer.crash(self._crash)

    async def _under_load(
        self, session: EngineSession, scenario: Scenario[Any], inspection: Inspection, progress: RunProgress
    ) -> Alarm | None:
        """Calibrate, load, ask whether it still serves, compare answers; an alarm as soon as the engine is gone."""
        cancelled = self._cancelled.wait
        alarm = await session.unless_gone(inspection.calibrate, cancelled)
        recording = session.begin()
        if alarm is None:
            session.ready_now()
        checks = inspection.begin(recording)
        driver = Driver(scenario, session.client, recording, session.prompts, self._waves.add, checks, session.clock)

        async def tell_progress() -> NoReturn:
            while True:
                await self._tell_findings(inspection)
                await self._observer.progress(progress.snapshot())
                await session.clock.sleep(_PROGRESS_SECONDS, _SHORTEST_PROGRESS_SECONDS)

        progress.begin(driver)
        await self._observer.status(RunStatus.RUNNING)
        if alarm is None:
            alarm = await session.drive(driver, cancelled, tell_progress, enough=lambda: progress.covered_enough)
        progress.end()
        await self._observer.status(RunStatus.DRAINING)
        alarm = alarm or session.look()
        if alarm is None and not self._cancelled.is_set():
            alarm = await session.survival(cancelled)
        if alarm is None and not self._cancelled.is_set():
            alarm = await session.unless_gone(inspection.compare, cancelled)
        return alarm

    async def _tell_findings(self, inspection: Inspection) -> None:
        for finding in inspection.new_findings():
            if self._first_finding is None and finding.waived is None:
                self._first_finding = finding, self._waves.last
            await self._observer.finding(finding)

    def _keep_evidence(self, session: EngineSession, scenario: Scenario[Any]) -> None:
        """Write what shows how it came about. A full disk must not lose what was measured, so it is only noted."""
        folder = self._run.folder
        try:
            self._waves.write(folder, scenario.restarts)
            if self._crash is not None:
                write_steps(folder, session.recording.last(STEPS_KEPT))
                kept = keep_repro(self._run, self._crash, self._waves.last, self._engine.name, scenario.server)
                self._crash = self._crash.model_copy(update={"evidence": {**self._crash.evidence, **kept}})
            elif self._first_finding is not None:
                finding, sent = self._first_finding
                keep_repro(self._run, finding, sent, self._engine.name, scenario.server)
        except OSError as error:
            self._notes.append(f"evidence could not be written: {error}")

    def _result(self, status: RunStatus, *notes: str) -> RunResult:
        progress = self._progress
        return RunResult(
            status=status,
            detail="\n".join(notes) or None,
            engine=self._engine,
            ready_at=self._ready_at,
            measures=progress.measures if progress is not None else Measures(),
            crashes=(self._crash,) if self._crash is not None else (),
            findings=progress.findings if progress is not None else (),
        )
