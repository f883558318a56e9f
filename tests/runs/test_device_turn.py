"""Claims about one run having the device at a time, across processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from service.controller import Controller, build_controller
from service.home import Home
from service.runs.events import EventType
from service.runs.model import RunStatus, Verdict
from service.spec.spec import RunSpec
from tests.fake_executor import FakeExecutor

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

_HOLD = """
import sys, time
from filelock import FileLock
lock = FileLock(sys.argv[1])
lock.acquire()
open(sys.argv[2], "w").write('{"pid": 42, "run": "other"}')
print("held", flush=True)
time.sleep(60)
"""


@contextmanager
def another_process(home: Home) -> Iterator[subprocess.Popen[str]]:
    home.ensure()
    lock = home.device_lock
    command = [sys.executable, "-c", _HOLD, str(lock), str(lock.with_suffix(".holder"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


async def until_told(controller: Controller, run_id: str) -> str:
    async for event in controller.manager.events(run_id):
        if event.type is EventType.STATUS and event.run.detail:
            return event.run.detail
    raise AssertionError("it never waited")


async def test_a_run_waits_for_another_process_says_for_which_and_goes_on_when_that_is_killed(tmp_path: Path) -> None:
    home, executor = Home(tmp_path), FakeExecutor()
    controller = build_controller(home, executor)
    with another_process(home) as other:
        async with controller.manager.started() as manager:
            run = await manager.submit(RunSpec())
            assert await until_told(controller, run.id) == "another lastpage process, pid 42, runs other"
            assert executor.executed == []
            assert (await manager.get(run.id)).status is RunStatus.CREATED
            other.kill()
            ended = await manager.wait(run.id)
    assert (ended.verdict, ended.detail) == (Verdict.PASS, None)
    assert not home.device_lock.with_suffix(".holder").exists()


@pytest.mark.parametrize(("stopped_by", "status"), [("cancel", "cancelled"), ("shutdown", "interrupted")])
async def test_a_run_that_waits_for_another_process_can_be_stopped(
    stopped_by: str, status: str, tmp_path: Path
) -> None:
    home, executor = Home(tmp_path), FakeExecutor()
    controller = build_controller(home, executor)
    with another_process(home):
        async with controller.manager.started() as manager:
            run = await manager.submit(RunSpec())
            await until_told(controller, run.id)
            with anyio.fail_after(10):
                await (manager.cancel(run.id) if stopped_by == "cancel" else manager.shutdown())
                ended = await manager.wait(run.id)
    assert ended.status.value == status
    assert executor.executed == []
