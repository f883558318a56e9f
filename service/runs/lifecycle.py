"""The life of a run as a state machine. Pure.

::

    created ──► launching ──► running ──► draining ──► finished
       │            │            │          │
       │            │            └──────────┼──────────► finished     (a crash leaves nothing to drain)
       ├────────────┴──► failed_to_start    │
       └────────────┴────────────┴──────────┴──────────► cancelled, interrupted
"""

from __future__ import annotations

from datetime import datetime

from service.errors import LastpageError
from service.runs.model import Run, RunStatus

_STOPPED = frozenset({RunStatus.CANCELLED, RunStatus.INTERRUPTED})

NEXT: dict[RunStatus, frozenset[RunStatus]] = {
    RunStatus.CREATED: _STOPPED | {RunStatus.CREATED, RunStatus.LAUNCHING, RunStatus.FAILED_TO_START},
    RunStatus.LAUNCHING: _STOPPED | {RunStatus.RUNNING, RunStatus.FAILED_TO_START},
    RunStatus.RUNNING: _STOPPED | {RunStatus.DRAINING, RunStatus.FINISHED},
    RunStatus.DRAINING: _STOPPED | {RunStatus.FINISHED},
    RunStatus.FINISHED: frozenset(),
    RunStatus.FAILED_TO_START: frozenset(),
    RunStatus.CANCELLED: frozenset(),
    RunStatus.INTERRUPTED: frozenset(),
}
"""The statuses that may follow each status; a run that waits may say anew for what."""


class InvalidTransition(LastpageError):
    """A status that may not follow the one before it."""

    def __init__(self, run_id: str, current: RunStatus, following: RunStatus) -> None:
        allowed = ", ".join(sorted(status.value for status in NEXT[current])) or "nothing, it has ended"
        super().__init__(f"run {run_id} is {current.value} and cannot become {following.value}; allowed: {allowed}")
        self.current = current
        self.following = following


def advance(run: Run, status: RunStatus, at: datetime, detail: str | None = None) -> Run:
    """The run in its next status, with the times that follow from it.

    Raises:
        InvalidTransition: the status may not follow the run's present one.
    """
    if status not in NEXT[run.status]:
        raise InvalidTransition(run.id, run.status, status)
    times: dict[str, datetime] = {}
    if status is RunStatus.LAUNCHING:
        times["started_at"] = at
    if status.ended:
        times["finished_at"] = at
    return run.model_copy(update={"status": status, "detail": detail, **times})
