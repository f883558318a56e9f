"""Runs in memory: gone with the process."""

from __future__ import annotations

from service.runs.model import Run, RunStatus
from service.runs.store import RunNotFound

CAPACITY = 1000


class MemoryRunStore:
    """A `RunStore` that keeps the last runs and forgets older ones that have ended."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._runs: dict[str, Run] = {}

    async def save(self, run: Run) -> None:
        self._runs[run.id] = run
        if len(self._runs) > self._capacity:
            oldest = next((kept.id for kept in self._runs.values() if kept.status.ended and kept.id != run.id), None)
            if oldest is not None:
                del self._runs[oldest]

    async def get(self, run_id: str) -> Run:
        try:
            return self._runs[run_id]
        except KeyError:
            raise RunNotFound(run_id) from None

    async def list(self, *, limit: int, status: RunStatus | None = None) -> list[Run]:
        newest_first = reversed(self._runs.values())
        return [run for run in newest_first if status in (None, run.status)][:limit]
