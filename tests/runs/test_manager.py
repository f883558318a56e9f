"""Claims about the run manager."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from service.report.json_report import write_report
from service.runs import manager as manager_module
from service.runs.active_run import ReportWriter
from service.runs.events import EventType, RunEvent
from service.runs.executor import RunObserver
from service.runs.manager import NotAccepting, RunEnded, RunManager
from service.runs.model import Run, RunResult, RunStatus, Verdict
from service.runs.store import RunNotFound
from service.spec.faults import Fault, InvalidSpec
from service.spec.parsing import parse_spec
from service.spec.spec import RunSpec
from service.spec.yaml_text import load_yaml
from service.store.memory import MemoryRunStore
from tests.fake_executor import AT_THE_EDGE, CRASH, ENGINE, FakeExecutor

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(20)]

SPEC = RunSpec()


class Watcher:
    """A store and a listener that check the order of storing and announcing."""

    def __init__(self) -> None:
        self.store = MemoryRunStore()
        self.announced: list[RunEvent] = []

    def observe(self, event: RunEvent) -> None:
        assert self.store._runs[event.run.id] is event.run, "announced before it was stored"
        self.announced.append(event)

    def statuses(self, run_id: str) -> list[str]:
        seen = [event.run.status.value for event in self.announced if event.run.id == run_id]
        return [status for status, before in zip(seen, [None, *seen], strict=False) if status != before]


@asynccontextmanager
async def managing(
    tmp_path: Path, executor: FakeExecutor, write: ReportWriter = write_report
) -> AsyncIterator[tuple[RunManager, Watcher]]:
    watcher = Watcher()
    async with RunManager(watcher.store, executor, tmp_path / "runs", write, [watcher.observe]).started() as manager:
        with anyio.fail_after(10):
            yield manager, watcher


def report(run: Run) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((run.folder / "report.json").read_text())
    return loaded


async def test_a_run_goes_through_its_life_and_passes(tmp_path: Path) -> None:
    async with managing(tmp_path, FakeExecutor()) as (manager, watcher):
        created = await manager.submit(SPEC)
        assert (created.status, created.verdict) == (RunStatus.CREATED, None)
        run = await manager.wait(created.id)
    assert watcher.statuses(run.id) == ["created", "launching", "running", "draining", "finished"]
    assert (run.verdict, run.engine, run.measures.critical_steps) == (Verdict.PASS, ENGINE, 900)
    assert run.started_at and run.ready_at and run.finished_at
    assert report(run)["verdict"] == "pass"


async def test_the_engine_that_was_taken_stands_in_the_spec_that_named_none(tmp_path: Path) -> None:
    async with managing(tmp_path, FakeExecutor()) as (manager, _):
        run = await manager.wait((await manager.submit(SPEC)).id)
    assert run.spec.engine.name == ENGINE.name == report(run)["spec"]["engine"]["name"]
    assert parse_spec(load_yaml(run.folder / "spec.yaml")) == run.spec


async def test_the_seed_is_drawn_recorded_and_reproduces_the_spec(tmp_path: Path) -> None:
    async with managing(tmp_path, FakeExecutor()) as (manager, _):
        first = await manager.wait((await manager.submit(SPEC)).id)
        second = await manager.wait((await manager.submit(parse_spec({"load": {"seed": 7}}))).id)
    assert isinstance(first.spec.load.seed, int)
    assert report(first)["seed"] == first.spec.load.seed
    assert second.spec.load.seed == 7
    assert parse_spec(load_yaml(first.folder / "spec.yaml")) == first.spec


async def test_a_crash_is_kept_counted_and_fails_the_run(tmp_path: Path) -> None:
    async with managing(tmp_path, FakeExecutor(crash=CRASH)) as (manager, watcher):
        run = await manager.wait((await manager.submit(SPEC)).id)
    assert (run.status, run.verdict, run.crashes, run.measures.crashes) == (
        RunStatus.FINISHED,
        Verdict.FAIL,
        (CRASH,),
        1,
    )
    assert EventType.CRASH in [event.type for event in watcher.announced]
    assert report(run)["crashes"][0]["kind"] == "oob_index"


async def test_an_engine_that_does_not_start_ends_the_run_with_a_report(tmp_path: Path) -> None:
    async with managing(tmp_path, FakeExecutor(starts=False)) as (manager, watcher):
        run = await manager.wait((await manager.submit(SPEC)).id)
    assert watcher.statuses(run.id) == ["created", "launching", "failed_to_start"]
    assert run.verdict is Verdict.INCONCLUSIVE
    assert "no module named sglang" in report(run)["detail"]


async def test_a_fault_found_in_preflight_leaves_nothing_behind(tmp_path: Path) -> None:
    executor = FakeExecutor()
    executor.faults = [Fault(field="engine.name", value=None, message="not known")]
    async with managing(tmp_path, executor) as (manager, watcher):
        with pytest.raises(InvalidSpec, match="not known"):
            await manager.submit(SPEC)
        assert await manager.list() == []
    assert not (tmp_path / "runs").exists()
    assert watcher.announced == []


async def test_runs_have_the_device_one_at_a_time_and_in_order(tmp_path: Path) -> None:
    executor = FakeExecutor()
    async with managing(tmp_path, executor) as (manager, _):
        ids = [(await manager.submit(SPEC)).id for _ in range(5)]
        for run_id in ids:
            assert (await manager.wait(run_id)).verdict is Verdict.PASS
    assert executor.executed == ids
    assert len(set(ids)) == 5


async def test_two_submitted_at_once_both_run(tmp_path: Path) -> None:
    executor = FakeExecutor()
    async with managing(tmp_path, executor) as (manager, _):
        async with anyio.create_task_group() as group:
            group.start_soon(manager.submit, SPEC)
            group.start_soon(manager.submit, SPEC)
        runs = await manager.list()
        assert len(runs) == 2
        for run in runs:
            assert (await manager.wait(run.id)).verdict is Verdict.PASS
    assert sorted(executor.executed) == sorted(run.id for run in runs)


async def test_a_run_that_waits_says_after_which_run(tmp_path: Path) -> None:
    executor = FakeExecutor(hold_at=RunStatus.RUNNING)
    async with managing(tmp_path, executor) as (manager, _):
        first = await manager.submit(SPEC)
        await executor.holding.wait()
        second, third = [await manager.submit(SPEC) for _ in range(2)]
        details = [(await manager.get(run.id)).detail for run in (first, second, third)]
        assert details == [None, *(f"waits for its turn, after run {run.id}" for run in (first, second))]
        executor.release.set()
        assert (await manager.wait(third.id)).detail is None


async def test_a_run_cancelled_while_it_waits_never_starts(tmp_path: Path) -> None:
    executor = FakeExecutor(hold_at=RunStatus.RUNNING)
    async with managing(tmp_path, executor) as (manager, watcher):
        first, second, third = [await manager.submit(SPEC) for _ in range(3)]
        await executor.holding.wait()
        cancelled = await manager.cancel(second.id)
        assert cancelled.status is RunStatus.CANCELLED
        executor.release.set()
        await manager.wait(third.id)
    assert executor.executed == [first.id, third.id]
    assert watcher.statuses(second.id) == ["created", "cancelled"]
    assert report(cancelled)["status"] == "cancelled"


@pytest.mark.parametrize("status", [RunStatus.LAUNCHING, RunStatus.RUNNING])
async def test_a_run_cancelled_while_it_has_the_device_keeps_what_it_measured(
    tmp_path: Path, status: RunStatus
) -> None:
    executor = FakeExecutor(hold_at=status)
    async with managing(tmp_path, executor) as (manager, _):
        run = await manager.submit(SPEC)
        await executor.holding.wait()
        assert (await manager.cancel(run.id)).status is status
        assert (await manager.cancel(run.id)).status is status, "to ask twice is to ask once"
        run = await manager.wait(run.id)
    assert (run.status, run.verdict) == (RunStatus.CANCELLED, Verdict.INCONCLUSIVE)
    assert "cancelled" in run.reasons[0]
    assert report(run)["measures"]["decode_steps"] == (1000 if status is RunStatus.RUNNING else 0)


async def test_a_run_that_has_ended_cannot_be_cancelled(tmp_path: Path) -> None:
    async with managing(tmp_path, FakeExecutor()) as (manager, _):
        run = await manager.wait((await manager.submit(SPEC)).id)
        with pytest.raises(RunEnded, match="finished"):
            await manager.cancel(run.id)
        with pytest.raises(RunNotFound):
            await manager.cancel("none")


async def test_a_watcher_sees_everything_from_the_start_whenever_it_comes(tmp_path: Path) -> None:
    executor = FakeExecutor(hold_at=RunStatus.RUNNING)
    async with managing(tmp_path, executor) as (manager, _):
        run = await manager.submit(SPEC)
        seen: dict[str, list[RunEvent]] = {"early": [], "late": [], "after": []}

        async def watch(name: str, after: int = 0) -> None:
            async for event in manager.events(run.id, after):
                seen[name].append(event)

        async with anyio.create_task_group() as group:
            group.start_soon(watch, "early")
            await executor.holding.wait()
            group.start_soon(watch, "late")
            group.start_soon(watch, "after", 2)
            executor.release.set()
        await watch("after", seen["early"][-1].id)
        assert await manager.nothing_follows(run.id, seen["early"][-1].id)
    ids = [event.id for event in seen["early"]]
    assert ids == list(range(1, len(ids) + 1))
    assert seen["late"] == seen["early"]
    assert seen["after"] == seen["early"][2:]
    assert [event.type for event in seen["early"]][-1] is EventType.FINISHED


async def test_shutdown_interrupts_what_runs_and_what_waits(tmp_path: Path) -> None:
    executor = FakeExecutor(hold_at=RunStatus.RUNNING)
    async with managing(tmp_path, executor) as (manager, watcher):
        running, waiting = await manager.submit(SPEC), await manager.submit(SPEC)
        await executor.holding.wait()
        await manager.shutdown()
        with pytest.raises(NotAccepting, match="stopping"):
            await manager.submit(SPEC)
    running, waiting = await watcher.store.get(running.id), await watcher.store.get(waiting.id)
    assert (running.status, waiting.status) == (RunStatus.INTERRUPTED, RunStatus.INTERRUPTED)
    assert report(running)["measures"]["critical_steps"] == AT_THE_EDGE.critical_steps
    assert report(waiting)["status"] == "interrupted"
    assert executor.executed == [running.id]


async def test_who_asked_first_decides_how_a_stop_is_called(tmp_path: Path) -> None:
    executor = FakeExecutor(hold_at=RunStatus.RUNNING)
    async with managing(tmp_path, executor) as (manager, watcher):
        run = await manager.submit(SPEC)
        await executor.holding.wait()
        await manager.cancel(run.id)
        await manager.shutdown()
    assert (await watcher.store.get(run.id)).status is RunStatus.CANCELLED


async def test_leaving_the_manager_interrupts_what_runs(tmp_path: Path) -> None:
    executor = FakeExecutor(hold_at=RunStatus.LAUNCHING)
    async with managing(tmp_path, executor) as (manager, watcher):
        run = await manager.submit(SPEC)
        await executor.holding.wait()
    assert (await watcher.store.get(run.id)).status is RunStatus.INTERRUPTED


async def test_a_run_that_does_not_stop_is_cut_off_and_still_reported(tmp_path: Path) -> None:
    executor = FakeExecutor(hold_at=RunStatus.RUNNING, deaf=True)
    async with managing(tmp_path, executor) as (manager, watcher):
        run = await manager.submit(SPEC)
        await executor.holding.wait()
        await manager.shutdown(grace_seconds=0.01)
    run = await watcher.store.get(run.id)
    assert (run.status, run.engine) == (RunStatus.INTERRUPTED, ENGINE)
    assert report(run)["status"] == "interrupted"


async def test_a_failure_of_the_controller_ends_the_run_and_not_the_manager(tmp_path: Path) -> None:
    executor = FakeExecutor(fails=lambda: OSError("disk full"))
    async with managing(tmp_path, executor) as (manager, _):
        run = await manager.wait((await manager.submit(SPEC)).id)
        again = await manager.wait((await manager.submit(SPEC)).id)
    assert (run.status, run.verdict) == (RunStatus.INTERRUPTED, Verdict.INCONCLUSIVE)
    assert "OSError: disk full" in str(run.detail)
    assert again.status is RunStatus.INTERRUPTED


async def test_a_report_that_cannot_be_written_does_not_lose_the_run(tmp_path: Path) -> None:
    def refuse(run: Run) -> None:
        raise OSError(28, "No space left on device", str(run.folder))

    async with managing(tmp_path, FakeExecutor(), refuse) as (manager, _):
        run = await manager.wait((await manager.submit(SPEC)).id)
    assert run.verdict is Verdict.PASS
    assert "No space left on device" in str(run.detail)


async def test_a_verdict_that_cannot_be_given_ends_the_run_all_the_same(tmp_path: Path) -> None:
    spec = SPEC.model_copy(update={"thresholds": ("no threshold",)})
    async with managing(tmp_path, FakeExecutor()) as (manager, _):
        run = await manager.wait((await manager.submit(spec)).id)
        assert (run.status, run.verdict) == (RunStatus.FINISHED, Verdict.INCONCLUSIVE)
        assert "InvalidCondition" in run.reasons[0]
        assert (await manager.wait((await manager.submit(SPEC)).id)).verdict is Verdict.PASS


async def test_a_report_that_fails_in_an_unforeseen_way_does_not_lose_the_run(tmp_path: Path) -> None:
    def fail(run: Run) -> None:
        raise ZeroDivisionError(f"report of {run.id}")

    async with managing(tmp_path, FakeExecutor(), fail) as (manager, _):
        run = await manager.wait((await manager.submit(SPEC)).id)
    assert run.verdict is Verdict.PASS
    assert f"report of {run.id}" in str(run.detail)


async def test_an_end_that_cannot_be_stored_leaves_nobody_waiting(tmp_path: Path) -> None:
    class FullStore(MemoryRunStore):
        async def save(self, run: Run) -> None:
            if run.status.ended:
                raise OSError("no room")
            await super().save(run)

    async with RunManager(FullStore(), FakeExecutor(), tmp_path, write_report).started() as manager:
        with anyio.fail_after(10):
            for _ in range(2):
                created = await manager.submit(SPEC)
                run = await manager.wait(created.id)
                assert (run.status, run.verdict) == (RunStatus.INTERRUPTED, Verdict.INCONCLUSIVE)
                assert "OSError: no room" in str(run.detail)
                assert [event.type async for event in manager.events(run.id)][-1] is EventType.FINISHED


async def test_an_earlier_report_in_the_folder_does_not_speak_for_the_run(tmp_path: Path) -> None:
    executor = FakeExecutor(hold_at=RunStatus.LAUNCHING)
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "report.json").write_text('{"verdict": "pass"}')
    async with managing(tmp_path, executor) as (manager, _):
        await manager.submit(SPEC, folder)
        await executor.holding.wait()
        assert not (folder / "report.json").exists()
    assert json.loads((folder / "report.json").read_text())["verdict"] == "inconclusive"


async def test_a_folder_that_cannot_be_made_is_told_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    async with managing(tmp_path, FakeExecutor()) as (manager, _):
        with pytest.raises(OSError):
            await manager.submit(SPEC, tmp_path / "file" / "out")
        assert await manager.list() == []


async def test_runs_are_listed_newest_first_by_status_up_to_a_limit(tmp_path: Path) -> None:
    executor = FakeExecutor(hold_at=RunStatus.RUNNING)
    async with managing(tmp_path, executor) as (manager, _):
        ids = [(await manager.submit(SPEC)).id for _ in range(4)]
        await executor.holding.wait()
        assert [run.id for run in await manager.list()] == ids[::-1]
        assert [run.id for run in await manager.list(limit=2)] == ids[:1:-1]
        assert [run.id for run in await manager.list(status=RunStatus.RUNNING)] == ids[:1]


async def test_no_more_runs_than_can_wait_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager_module, "MAX_WAITING", 2)
    executor = FakeExecutor(hold_at=RunStatus.RUNNING)
    async with managing(tmp_path, executor) as (manager, _):
        await manager.submit(SPEC)
        await executor.holding.wait()
        await manager.submit(SPEC)
        await manager.submit(SPEC)
        assert not manager.accepting
        with pytest.raises(NotAccepting, match="2 runs are waiting"):
            await manager.submit(SPEC)


async def test_of_many_submitted_at_once_only_those_that_can_wait_are_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager_module, "MAX_WAITING", 3)
    executor = FakeExecutor(hold_at=RunStatus.RUNNING)
    refused = []
    async with managing(tmp_path, executor) as (manager, _):
        await manager.submit(SPEC)
        await executor.holding.wait()

        async def submit() -> None:
            try:
                await manager.submit(SPEC)
            except NotAccepting as error:
                refused.append(error)

        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(submit)
        assert (len(await manager.list()), len(refused)) == (4, 17)
        assert len(list((tmp_path / "runs").iterdir())) == 4


async def test_shutdown_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager_module, "CUT_OFF_SECONDS", 0.1)

    class Stuck(FakeExecutor):
        async def execute(self, run: Run, observer: RunObserver, cancelled: anyio.Event) -> RunResult:
            self.holding.set()
            with anyio.CancelScope(shield=True):
                await self.release.wait()
            return RunResult(status=RunStatus.CANCELLED)

    executor = Stuck()
    async with managing(tmp_path, executor) as (manager, _):
        run = await manager.submit(SPEC)
        await executor.holding.wait()
        await manager.shutdown(grace_seconds=0.01)
        assert "did not end" in str((await manager.wait(run.id)).detail)
        executor.release.set()


async def test_events_of_a_run_that_ended_long_ago_are_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager_module, "ENDED_LOGS_KEPT", 1)
    async with managing(tmp_path, FakeExecutor()) as (manager, _):
        first, second = [await manager.wait((await manager.submit(SPEC)).id) for _ in range(2)]
        assert [event.type async for event in manager.events(first.id)] == [EventType.FINISHED]
        assert await manager.nothing_follows(first.id, 1)
        assert len([event async for event in manager.events(second.id)]) > 1
        with pytest.raises(RunNotFound):
            async for _ in manager.events("none"):
                raise AssertionError
