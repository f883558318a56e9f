"""Claims about runs kept in memory."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from service.runs.model import Run, RunStatus
from service.runs.store import RunNotFound, RunStore
from service.spec.spec import RunSpec
from service.store.memory import MemoryRunStore

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 11, 30, tzinfo=timezone.utc)


def run(run_id: str, status: RunStatus = RunStatus.FINISHED) -> Run:
    return Run(id=run_id, status=status, spec=RunSpec(), folder=Path("/nowhere"), created_at=NOW)


async def test_what_was_saved_last_is_what_is_found() -> None:
    store: RunStore = MemoryRunStore()
    await store.save(run("a", RunStatus.CREATED))
    await store.save(run("b"))
    await store.save(run("a", RunStatus.RUNNING))
    assert (await store.get("a")).status is RunStatus.RUNNING
    assert [found.id for found in await store.list(limit=9)] == ["b", "a"], "a change is no new run"
    assert [found.id for found in await store.list(limit=9, status=RunStatus.RUNNING)] == ["a"]
    assert [found.id for found in await store.list(limit=1)] == ["b"]


async def test_a_run_that_is_not_there_is_named() -> None:
    with pytest.raises(RunNotFound, match="'none'"):
        await MemoryRunStore().get("none")


async def test_the_oldest_ended_run_is_forgotten_first_and_one_that_lives_never() -> None:
    store = MemoryRunStore(capacity=3)
    await store.save(run("alive", RunStatus.RUNNING))
    for number in range(5):
        await store.save(run(str(number)))
    assert [found.id for found in await store.list(limit=9)] == ["4", "3", "alive"]
