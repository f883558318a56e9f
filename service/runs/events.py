"""What happened in a run, in order, for anybody who watches: from the start, or from where they left off."""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime

import anyio

from service.engine.crash.crash import Crash
from service.runs.model import Finding, Progress, Run

PROGRESS_KEPT = 512


class EventType(str, enum.Enum):
    """Kinds of event."""

    STATUS = "status"  # the run has taken its next step, or its engine is known
    PROGRESS = "progress"
    CRASH = "crash"
    FINDING = "finding"  # the first of its kind and cause
    FINISHED = "finished"  # the run has ended, in whichever way; nothing follows


@dataclass(frozen=True)
class RunEvent:
    """Something that happened.

    Attributes:
        id: grows within a run, from 1, with gaps where old progress was thinned out.
        run: the run as it was stored before this was announced.
        detail: the progress, the crash or the finding, for events of those types.
    """

    id: int
    type: EventType
    at: datetime
    run: Run
    detail: Progress | Crash | Finding | None = None


class EventLog:
    """The events of one run. Any number of followers, none of which can hold the run up.

    Progress is kept up to `PROGRESS_KEPT` events: beyond that every other one of them is forgotten, so that a replay
    still covers the whole run. Everything else is kept.
    """

    def __init__(self) -> None:
        self._events: list[RunEvent] = []
        self._last_id = 0
        self._progress = 0
        self._closed = False
        self._changed = anyio.Event()

    def append(
        self, type: EventType, at: datetime, run: Run, detail: Progress | Crash | Finding | None = None
    ) -> RunEvent:
        """Announce an event. A `finished` one is the last."""
        self._last_id += 1
        event = RunEvent(self._last_id, type, at, run, detail)
        self._events.append(event)
        if type is EventType.PROGRESS:
            self._progress += 1
            self._thin()
        self._closed = type is EventType.FINISHED
        self._changed.set()
        self._changed = anyio.Event()
        return event

    async def follow(self, after: int = 0) -> AsyncIterator[RunEvent]:
        """The events with an id above `after`, as they come, up to the `finished` one."""
        while True:
            changed, closed = self._changed, self._closed
            for event in [event for event in self._events if event.id > after]:
                yield event
                after = event.id
            if closed:
                return
            if self._last_id <= after:
                await changed.wait()

    def nothing_follows(self, after: int) -> bool:
        """Whether the event with the id `after` was the last."""
        return self._closed and self._last_id <= after

    def _thin(self) -> None:
        if self._progress <= PROGRESS_KEPT:
            return
        progress = [event.id for event in self._events if event.type is EventType.PROGRESS]
        forgotten = set(progress[1:-1:2])
        self._events = [event for event in self._events if event.id not in forgotten]
        self._progress -= len(forgotten)
