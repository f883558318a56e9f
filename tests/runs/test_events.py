"""Claims about the log of events."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import anyio
import pytest

from service.runs.events import PROGRESS_KEPT, EventLog, EventType
from service.runs.model import Run
from service.spec.spec import RunSpec

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(20)]

NOW = datetime(2026, 11, 30, tzinfo=timezone.utc)
RUN = Run(id="r", spec=RunSpec(), folder=Path("/nowhere"), created_at=NOW)


async def test_a_long_run_keeps_all_transitions_and_a_thinned_progress() -> None:
    log = EventLog()
    log.append(EventType.STATUS, NOW, RUN)
    for _ in range(10 * PROGRESS_KEPT):
        log.append(EventType.PROGRESS, NOW, RUN)
    log.append(EventType.CRASH, NOW, RUN)
    log.append(EventType.FINISHED, NOW, RUN)
    events = [event async for event in log.follow()]
    ids = [event.id for event in events]
    assert ids == sorted(set(ids))
    assert len(events) <= PROGRESS_KEPT + 3
    assert [events[0].type, events[-2].type, events[-1].type] == [
        EventType.STATUS,
        EventType.CRASH,
        EventType.FINISHED,
    ]
    assert events[-3].id == 10 * PROGRESS_KEPT + 1, "the latest progress is kept"
    assert events[1].id < PROGRESS_KEPT, "the start of the run is still there"


async def test_a_follower_that_is_slow_holds_nobody_up_and_ends() -> None:
    log = EventLog()
    seen: list[int] = []

    async def follow() -> None:
        async for event in log.follow():
            seen.append(event.id)
            await anyio.sleep(0.001)

    async with anyio.create_task_group() as group:
        group.start_soon(follow)
        for _ in range(2 * PROGRESS_KEPT):
            log.append(EventType.PROGRESS, NOW, RUN)
        await anyio.sleep(0.01)
        log.append(EventType.FINISHED, NOW, RUN)
    assert seen == sorted(seen)
    assert seen[-1] == 2 * PROGRESS_KEPT + 1
