"""Runs one after another: one at a time has the device, the others wait in order."""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread

from service.errors import LastpageError
from service.runs.active_run import Listener, LiveRun, ReportWriter, utc_now
from service.runs.events import EventType, RunEvent
from service.runs.executor import Executor, PreparedRun
from service.runs.folder import new_run_id, prepare_folder
from service.runs.model import Run, RunResult, RunStatus
from service.runs.store import RunStore
from service.spec.spec import MAX_SEED, RunSpec

MAX_WAITING = 100
ENDED_LOGS_KEPT = 20
GRACE_SECONDS = 60.0
CUT_OFF_SECONDS = 60.0

_NEVER_STARTED = RunResult(status=RunStatus.INTERRUPTED, detail="the controller stopped before its turn came")
_CANCELLED_WAITING = RunResult(status=RunStatus.CANCELLED, detail="cancelled before its turn came")

_logger = logging.getLogger(__name__)


class RunEnded(LastpageError):
    """What was asked for needs a run that has not ended."""

    def __init__(self, run: Run) -> None:
        super().__init__(f"run {run.id} has ended already: {run.status.value}")
        self.run = run


class NotAccepting(LastpageError):
    """No run is accepted now: too many wait, or the controller is stopping."""


class RunManager:
    """Accepts, queues, carries out and cancels runs. Use it within `started()`; it belongs to one event loop."""

    def __init__(
        self,
        store: RunStore,
        executor: Executor,
        runs_folder: Path,
        write_report: ReportWriter,
        listeners: Sequence[Listener] = (),
    ) -> None:
        """
        Args:
            runs_folder: each run gets a folder of its own below it.
            write_report: called with each run that ends.
            listeners: called with every event of every run.
        """
        self._store = store
        self._executor = executor
        self._runs_folder = runs_folder
        self._write_report = write_report
        self._listeners = listeners
        self._live: dict[str, LiveRun] = {}
        self._waiting: deque[LiveRun] = deque()
        self._prepared: dict[str, PreparedRun] = {}  # of those that wait
        self._places_taken = 0  # by runs that are accepted and do not wait yet
        self._arrived: anyio.Event
        self._worker: anyio.CancelScope
        self._current: LiveRun | None = None
        self._stopping = False

    @asynccontextmanager
    async def started(self) -> AsyncIterator[RunManager]:
        """Carry runs out while the context lasts; at its end whatever still runs is interrupted and taken down."""
        self._arrived = anyio.Event()
        self._worker = anyio.CancelScope()
        async with anyio.create_task_group() as group:
            group.start_soon(self._work)
            try:
                yield self
            finally:
                with anyio.CancelScope(shield=True):
                    await self.shutdown()
                group.cancel_scope.cancel()

    @property
    def accepting(self) -> bool:
        return not self._stopping and not self._full

    @property
    def _full(self) -> bool:
        return len(self._waiting) + self._places_taken >= MAX_WAITING

    async def submit(self, spec: RunSpec, folder: Path | None = None) -> Run:
        """Check a spec and put a run of it at the end of the queue.

        Args:
            folder: where the run's files go; absent: a folder of its own below the runs folder.

        Raises:
            InvalidSpec: it cannot work; nothing was started and nothing is kept.
            NotAccepting: see there.
            OSError: the folder cannot be made or written to.
        """
        prepared = await self._executor.preflight(spec)
        self._check_accepting()
        self._places_taken += 1
        try:
            return await self._enqueue(spec, prepared, folder)
        finally:
            self._places_taken -= 1

    async def _enqueue(self, spec: RunSpec, prepared: PreparedRun, folder: Path | None) -> Run:
        at = utc_now()
        run_id = new_run_id(at)
        run = Run(
            id=run_id,
            detail=self._queued_after(),
            spec=_with_seed(spec),
            folder=folder or self._runs_folder / run_id,
            created_at=at,
        )
        await anyio.to_thread.run_sync(prepare_folder, run.folder, run.spec)
        live = LiveRun(run, self._store, self._write_report, self._listeners)
        with anyio.CancelScope(shield=True):
            self._live[run_id] = live
            await live.created()
            if self._stopping:
                await self._end(live, _NEVER_STARTED)
            elif live.stop.is_set():
                await self._end(live, _CANCELLED_WAITING)
            else:
                self._waiting.append(live)
                self._prepared[run_id] = prepared
                self._arrived.set()
        return live.run

    def _queued_after(self) -> str | None:
        before = self._waiting[-1] if self._waiting else self._current
        return None if before is None else f"waits for its turn, after run {before.run.id}"

    async def get(self, run_id: str) -> Run:
        """A run by its id.

        Raises:
            RunNotFound: there is none.
        """
        return await self._store.get(run_id)

    async def list(self, *, limit: int = 100, status: RunStatus | None = None) -> list[Run]:
        """Up to `limit` runs, the last created first."""
        return await self._store.list(limit=limit, status=status)

    async def cancel(self, run_id: str) -> Run:
        """Ask for a run to stop; one that still waits ends at once. To ask twice is to ask once.

        Raises:
            RunNotFound: there is none of that id.
            RunEnded: it has ended already.
        """
        live = self._live.get(run_id)
        if live is None or live.run.status.ended:
            raise RunEnded(await self._store.get(run_id))
        live.stop.set()
        if live in self._waiting:
            self._waiting.remove(live)
            del self._prepared[run_id]
            await self._end(live, _CANCELLED_WAITING)
        return live.run

    async def wait(self, run_id: str) -> Run:
        """The run, once it has ended.

        Raises:
            RunNotFound: there is none of that id.
        """
        if live := self._live.get(run_id):
            await live.ended.wait()
            return live.run
        return await self._store.get(run_id)

    async def events(self, run_id: str, after: int = 0) -> AsyncIterator[RunEvent]:
        """The events of a run with an id above `after`: first what has happened, then what happens, up to its end.

        Raises:
            RunNotFound: there is none of that id.
        """
        if live := self._live.get(run_id):
            async for event in live.log.follow(after):
                yield event
            return
        run = await self._store.get(run_id)
        if run.finished_at is not None and after == 0:
            yield RunEvent(1, EventType.FINISHED, run.finished_at, run)

    async def nothing_follows(self, run_id: str, after: int) -> bool:
        """Whether a watcher who has seen the event `after` has seen the last one.

        Raises:
            RunNotFound: there is none of that id.
        """
        if live := self._live.get(run_id):
            return live.log.nothing_follows(after)
        return (await self._store.get(run_id)).status.ended and after > 0

    async def shutdown(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Accept nothing more, interrupt what waits and what runs, and return when all of it has ended.

        Args:
            grace_seconds: time for the running run to stop by itself, before it is cut off. What has not ended
                CUT_OFF_SECONDS after that is given up.
        """
        self._stopping = True
        self._prepared.clear()
        while self._waiting:
            await self._end(self._waiting.popleft(), _NEVER_STARTED)
        if self._current is not None:
            current = self._current
            current.interrupted = current.interrupted or not current.stop.is_set()
            current.stop.set()
            with anyio.move_on_after(grace_seconds):
                await current.ended.wait()
            if not current.ended.is_set():
                self._worker.cancel()
                with anyio.move_on_after(CUT_OFF_SECONDS):
                    await current.ended.wait()
            if not current.ended.is_set():
                _logger.error("run %s did not end within %g s of being cut off", current.run.id, CUT_OFF_SECONDS)
                current.abandon(_cut_off(current.run, "the controller stopped, and the run did not end"))

    def _check_accepting(self) -> None:
        if self._stopping:
            raise NotAccepting("the controller is stopping")
        if self._full:
            raise NotAccepting(f"{MAX_WAITING} runs are waiting, no more are accepted until one has ended")

    async def _work(self) -> None:
        with self._worker:
            while True:
                while not self._waiting:
                    self._arrived = anyio.Event()
                    await self._arrived.wait()
                self._current = self._waiting.popleft()
                await self._carry_out(self._current, self._prepared.pop(self._current.run.id))
                self._current = None

    async def _carry_out(self, live: LiveRun, prepared: PreparedRun) -> None:
        try:
            result = await prepared.execute(live.run, live, live.stop)
        except anyio.get_cancelled_exc_class():
            await self._end(live, _cut_off(live.run, "the controller stopped"))
            raise
        except Exception as error:
            _logger.exception("run %s: the controller failed", live.run.id)
            result = _cut_off(live.run, f"the controller failed: {type(error).__name__}: {error}")
        if live.interrupted and result.status is RunStatus.CANCELLED:
            result = result.model_copy(update={"status": RunStatus.INTERRUPTED})
        await self._end(live, result)

    async def _end(self, live: LiveRun, result: RunResult) -> None:
        with anyio.CancelScope(shield=True):
            try:
                await live.end(result)
            except Exception as error:
                _logger.exception("run %s: it could not be ended as %s", live.run.id, result.status.value)
                await self._break_off(live, f"the controller failed: {type(error).__name__}: {error}")
        ended = [run_id for run_id, other in self._live.items() if other.run.status.ended]
        for run_id in ended[:-ENDED_LOGS_KEPT]:
            del self._live[run_id]

    async def _break_off(self, live: LiveRun, detail: str) -> None:
        result = _cut_off(live.run, detail)
        try:
            await live.end(result)
        except Exception:
            _logger.exception("run %s: it is abandoned", live.run.id)
            live.abandon(result)


def _with_seed(spec: RunSpec) -> RunSpec:
    """The spec with a seed, drawn at random where it has none, so that the record of the run has it."""
    if spec.load.seed is not None:
        return spec
    load = spec.load.model_copy(update={"seed": secrets.randbelow(MAX_SEED + 1)})
    return spec.model_copy(update={"load": load})


def _cut_off(run: Run, detail: str) -> RunResult:
    """The result of a run that the controller itself broke off, with all that was known of it."""
    return RunResult(
        status=RunStatus.INTERRUPTED,
        detail=detail,
        engine=run.engine,
        ready_at=run.ready_at,
        measures=run.measures,
        crashes=run.crashes,
        findings=run.findings,
    )
