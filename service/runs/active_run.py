"""A run that has not ended yet: every change of it is stored, then announced."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timezone

import anyio
import anyio.to_thread

from service.engine.crash.crash import Crash
from service.runs.events import EventLog, EventType, RunEvent
from service.runs.folder import write_spec
from service.runs.lifecycle import advance
from service.runs.model import EngineInfo, Finding, Measures, Progress, Run, RunResult, RunStatus, Verdict
from service.runs.store import RunStore
from service.runs.verdict import Judgement, judge
from service.spec.spec import RunSpec
from service.spec.thresholds import Threshold

_logger = logging.getLogger(__name__)

Listener = Callable[[RunEvent], None]
"""Called with each event after it was announced. It must not block or raise."""

ReportWriter = Callable[[Run], None]
"""Called, in a thread, with a run that ends, before its end is announced. What it raises is told in the run."""


def utc_now() -> datetime:
    return datetime.now(timezone.utc)


class LiveRun:
    """A run with its events. It is the `RunObserver` of whoever carries it out.

    Attributes:
        run: the latest state, as stored.
        log: what was announced.
        stop: set when the run shall stop early.
        interrupted: whether it shall because the controller stops, and nobody had asked for it before.
        ended: set when the run has ended and its report is written.
    """

    def __init__(
        self, run: Run, store: RunStore, write_report: ReportWriter, listeners: Sequence[Listener] = ()
    ) -> None:
        self.run = run
        self.log = EventLog()
        self.stop = anyio.Event()
        self.interrupted = False
        self.ended = anyio.Event()
        self._store = store
        self._write_report = write_report
        self._listeners = listeners
        self._changing = anyio.Lock()

    async def created(self) -> None:
        async with self._changing:
            await self._keep(self.run, EventType.STATUS)

    async def status(self, status: RunStatus, detail: str | None = None) -> None:
        async with self._changing:
            await self._keep(advance(self.run, status, utc_now(), detail), EventType.STATUS)

    async def engine(self, engine: EngineInfo) -> None:
        async with self._changing:
            spec = _with_engine(self.run.spec, engine.name)
            if spec != self.run.spec:
                # The report holds it as well.
                with contextlib.suppress(OSError):
                    await anyio.to_thread.run_sync(write_spec, self.run.folder, spec)
            await self._keep(self.run.model_copy(update={"engine": engine, "spec": spec}), EventType.STATUS)

    async def progress(self, progress: Progress) -> None:
        async with self._changing:
            run = self._with_measures(progress.measures, self.run.crashes)
            run = run.model_copy(update={"findings": progress.findings or run.findings})
            await self._keep(run, EventType.PROGRESS, progress)

    async def finding(self, finding: Finding) -> None:
        async with self._changing:
            run = self.run.model_copy(update={"findings": (*self.run.findings, finding)})
            await self._keep(run, EventType.FINDING, finding)

    async def crash(self, crash: Crash) -> None:
        async with self._changing:
            crashes = (*self.run.crashes, crash)
            await self._keep(self._with_measures(self.run.measures, crashes), EventType.CRASH, crash)

    async def end(self, result: RunResult) -> None:
        """Give the verdict, write the report, store and announce the end.

        Raises:
            InvalidTransition: the run cannot end like that from where it is.
        """
        async with self._changing:
            run = await self._reported(self._judged(result))
            await self._keep(run, EventType.FINISHED)
            self.ended.set()

    def abandon(self, result: RunResult) -> None:
        """End the run where `end` failed: neither reported nor stored, but nobody waits for it any longer."""
        if not self.run.status.ended:
            changes = {"status": RunStatus.INTERRUPTED, "detail": result.detail, "verdict": Verdict.INCONCLUSIVE}
            self.run = self.run.model_copy(update={**changes, "finished_at": utc_now()})
            self.log.append(EventType.FINISHED, utc_now(), self.run)
        self.ended.set()

    async def _reported(self, run: Run) -> Run:
        """The run, told in its detail when its report could not be written: what was measured is kept all the same."""
        try:
            await anyio.to_thread.run_sync(self._write_report, run)
        except Exception as error:
            _logger.exception("run %s: report.json could not be written", run.id)
            note = f"report.json could not be written: {error}"
            return run.model_copy(update={"detail": f"{run.detail}\n{note}" if run.detail else note})
        return run

    def _judged(self, result: RunResult) -> Run:
        run = advance(self.run, result.status, utc_now(), result.detail)
        crashes = result.crashes or self.run.crashes
        measures = result.measures.model_copy(update={"crashes": len(crashes)})
        engine = result.engine or run.engine
        judgement = self._judgement(measures, result.status, simulated=engine is not None and engine.simulated)
        return run.model_copy(
            update={
                "verdict": judgement.verdict,
                "reasons": judgement.reasons,
                "engine": engine,
                "ready_at": result.ready_at,
                "measures": measures,
                "crashes": crashes,
                "findings": result.findings or run.findings,
            }
        )

    def _judgement(self, measures: Measures, status: RunStatus, *, simulated: bool) -> Judgement:
        try:
            thresholds = [Threshold.parse(text) for text in self.run.spec.thresholds]
            return judge(measures, thresholds, status, simulated=simulated)
        except Exception as error:
            _logger.exception("run %s: no verdict could be given", self.run.id)
            return Judgement(Verdict.INCONCLUSIVE, (f"no verdict could be given: {type(error).__name__}: {error}",))

    def _with_measures(self, measures: Measures, crashes: tuple[Crash, ...]) -> Run:
        return self.run.model_copy(update={"measures": measures, "crashes": crashes})

    async def _keep(self, run: Run, type: EventType, detail: Progress | Crash | Finding | None = None) -> None:
        if self.run.status.ended:
            raise RuntimeError(f"run {run.id} has ended, nothing can happen in it any more")
        await self._store.save(run)
        self.run = run
        event = self.log.append(type, utc_now(), run, detail)
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:
                _logger.exception("run %s: a listener failed", run.id)


def _with_engine(spec: RunSpec, name: str) -> RunSpec:
    """The spec with the engine that was taken where it names none, so that the record of the run has it."""
    if spec.engine.name is not None:
        return spec
    return spec.model_copy(update={"engine": spec.engine.model_copy(update={"name": name})})
