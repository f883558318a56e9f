"""Where runs are kept."""

from __future__ import annotations

from typing import Protocol

from service.errors import LastpageError
from service.runs.model import Run, RunStatus


class RunNotFound(LastpageError):
    """There is no run of that id."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"there is no run {run_id!r}")
        self.run_id = run_id


class RunStore(Protocol):
    """Keeps the latest state of every run. For how long, and whether beyond the process, is its own matter."""

    async def save(self, run: Run) -> None:
        """Keep a run, in place of what was kept under its id."""

    async def get(self, run_id: str) -> Run:
        """A run by its id.

        Raises:
            RunNotFound: there is none.
        """
        ...

    async def list(self, *, limit: int, status: RunStatus | None = None) -> list[Run]:
        """Up to `limit` runs, the last created first."""
        ...
