"""One run has the device at a time, across all lastpage processes that share a home."""

from __future__ import annotations

import json
import os
from pathlib import Path

import anyio
from filelock import FileLock, Timeout

from service.runs.executor import Executor, RunObserver
from service.runs.faults import Fault
from service.runs.model import Run, RunResult, RunStatus
from service.runs.spec import RunSpec

LOOK_AGAIN_SECONDS = 0.5

_CANCELLED = RunResult(status=RunStatus.CANCELLED, detail="cancelled before the device was free")


class DeviceTurn:
    """An executor that waits for the device before it lets another carry a run out.

    The lock is the operating system's: when its holder dies, in whichever way, it is free.
    """

    def __init__(self, executor: Executor, lock: Path) -> None:
        """
        Args:
            lock: the file to lock; next to it stands who holds it.
        """
        self._executor = executor
        self._lock = lock
        self._holder = lock.with_suffix(".holder")

    async def preflight(self, spec: RunSpec) -> list[Fault]:
        return await self._executor.preflight(spec)

    async def execute(self, run: Run, observer: RunObserver, cancelled: anyio.Event) -> RunResult:
        """See `Executor`; whoever waits says for whom.

        Raises:
            OSError: the lock cannot be had at all.
        """
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self._lock)
        if not await self._take(lock, observer, cancelled):
            return _CANCELLED
        try:
            self._holder.write_text(json.dumps({"pid": os.getpid(), "run": run.id}))
            return await self._executor.execute(run, observer, cancelled)
        finally:
            self._holder.unlink(missing_ok=True)
            lock.release()

    async def _take(self, lock: FileLock, observer: RunObserver, cancelled: anyio.Event) -> bool:
        """Wait for the lock; False when the run shall not take place any more."""
        told = None
        while not cancelled.is_set():
            try:
                lock.acquire(blocking=False)
                return True
            except Timeout:
                pass
            if (holder := self._held_by()) != told:
                await observer.status(RunStatus.CREATED, holder)
                told = holder
            with anyio.move_on_after(LOOK_AGAIN_SECONDS):
                await cancelled.wait()
        return False

    def _held_by(self) -> str:
        try:
            holder = json.loads(self._holder.read_text())
            return f"another lastpage process, pid {holder['pid']}, runs {holder['run']}"
        except (OSError, ValueError, KeyError, TypeError):
            return "another lastpage process has the device"
