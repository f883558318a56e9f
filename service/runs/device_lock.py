"""The lock of whoever has the device, across all lastpage processes that share a home.

It is the operating system's: when its holder dies, in whichever way, it is free.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
from filelock import FileLock, Timeout

LOOK_AGAIN_SECONDS = 0.5


class DeviceLock:
    """One holder's means to the lock.

    Args:
        path: the file to lock; next to it stands who holds it.
    """

    def __init__(self, path: Path) -> None:
        self._lock = FileLock(path)
        self._holder = path.with_suffix(".holder")

    async def take(self, run: str, waiting: Callable[[str], Awaitable[None]], cancelled: anyio.Event) -> bool:
        """Wait for the lock; False when `cancelled` was set before it was free.

        Args:
            run: for whom it is taken, for others to tell.
            waiting: told for whom it waits, whenever that changes.

        Raises:
            OSError: the lock cannot be had at all.
        """
        self._holder.parent.mkdir(parents=True, exist_ok=True)
        announced = None
        while not cancelled.is_set():
            try:
                self._lock.acquire(blocking=False)
            except Timeout:
                pass
            else:
                return self._taken(run)
            if (holder := self._held_by()) != announced:
                await waiting(holder)
                announced = holder
            with anyio.move_on_after(LOOK_AGAIN_SECONDS):
                await cancelled.wait()
        return False

    def _taken(self, run: str) -> bool:
        try:
            self._holder.write_text(json.dumps({"pid": os.getpid(), "run": run}))
        except OSError:
            self._lock.release()
            raise
        return True

    def release(self) -> None:
        """Give it back."""
        self._holder.unlink(missing_ok=True)
        self._lock.release()

    def _held_by(self) -> str:
        try:
            holder = json.loads(self._holder.read_text())
            return f"another lastpage process, pid {holder['pid']}, runs {holder['run']}"
        except (OSError, ValueError, KeyError, TypeError):
            return "another lastpage process has the device"
