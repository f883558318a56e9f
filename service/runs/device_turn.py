"""One run has the device at a time, across all lastpage processes that share a home."""

from __future__ import annotations

from pathlib import Path

import anyio

from service.runs.device_lock import DeviceLock
from service.runs.executor import Executor, RunObserver
from service.runs.model import Run, RunResult, RunStatus
from service.spec.faults import Fault
from service.spec.spec import RunSpec

_CANCELLED = RunResult(status=RunStatus.CANCELLED, detail="cancelled before the device was free")


class DeviceTurn:
    """An executor that waits for the device before it lets another carry a run out."""

    def __init__(self, executor: Executor, lock: Path) -> None:
        """
        Args:
            lock: the file to lock; see `DeviceLock`.
        """
        self._executor = executor
        self._lock = lock

    async def preflight(self, spec: RunSpec) -> list[Fault]:
        return await self._executor.preflight(spec)

    async def execute(self, run: Run, observer: RunObserver, cancelled: anyio.Event) -> RunResult:
        """See `Executor`; whoever waits says for whom.

        Raises:
            OSError: the lock cannot be had at all.
        """

        async def waiting(holder: str) -> None:
            await observer.status(RunStatus.CREATED, holder)

        lock = DeviceLock(self._lock)
        if not await lock.take(run.id, waiting, cancelled):
            return _CANCELLED
        try:
            return await self._executor.execute(run, observer, cancelled)
        finally:
            lock.release()
