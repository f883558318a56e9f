"""One run has the device at a time, across all lastpage processes that share a home."""

from __future__ import annotations

from pathlib import Path

import anyio

from service.runs.device_lock import DeviceLock
from service.runs.executor import Executor, PreparedRun, RunObserver
from service.runs.model import Run, RunResult, RunStatus
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

    async def preflight(self, spec: RunSpec) -> PreparedRun:
        return _InTurn(await self._executor.preflight(spec), self._lock)


class _InTurn:
    """A prepared run that waits for the device."""

    def __init__(self, prepared: PreparedRun, lock: Path) -> None:
        self._prepared = prepared
        self._lock = lock

    async def execute(self, run: Run, observer: RunObserver, cancelled: anyio.Event) -> RunResult:
        """See `PreparedRun`; whoever waits says for whom.

        Raises:
            OSError: the lock cannot be had at all.
        """

        async def waiting(holder: str) -> None:
            await observer.status(RunStatus.CREATED, holder)

        lock = DeviceLock(self._lock)
        if not await lock.take(run.id, waiting, cancelled):
            return _CANCELLED
        try:
            return await self._prepared.execute(run, observer, cancelled)
        finally:
            lock.release()
