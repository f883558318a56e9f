from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from service.engine.process import process as process_module
from service.engine.process import procfs
from service.engine.process.process import EngineNotStarted, EngineProcess
from tests.engine.process.launches import alive, children_of, fake_plan, wait_for

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

ROOT = Path(__file__).resolve().parents[3]
NOTICE_NS = 500_000_000


@pytest.fixture
def gone() -> int:
    """The pid of a process that has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


async def test_nothing_is_left_after_stop_of_a_family_that_left_session_group_and_parent(tmp_path: Path) -> None:
    plan = fake_plan(tmp_path, "family")
    process = await EngineProcess.start(plan)
    children = children_of(tmp_path)
    assert all(alive(pid) for pid in children)
    await process.stop(grace_seconds=0.2)
    assert [pid for pid in (process.pid, *children) if alive(pid)] == []
    assert procfs.token_holders(plan.token) == set()


async def test_engine_that_obeys_sigterm_is_not_killed(tmp_path: Path) -> None:
    process = await EngineProcess.start(fake_plan(tmp_path, "sleep"))
    await process.stop(grace_seconds=30)
    death = process.death()
    assert death is not None and death.signal == signal.SIGTERM


async def test_engine_that_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    plan = fake_plan(tmp_path, "ignore_sigterm")
    process = await EngineProcess.start(plan)
    children_of(tmp_path)
    started = time.monotonic()
    await process.stop(grace_seconds=0.3)
    assert 0.3 <= time.monotonic() - started < 5
    assert process.exit is not None and process.exit.signal == signal.SIGKILL
    assert procfs.token_holders(plan.token) == set()


async def test_stopped_engine_does_not_count_as_dead_and_can_be_ended(tmp_path: Path) -> None:
    plan = fake_plan(tmp_path, "sleep")
    process = await EngineProcess.start(plan)
    os.kill(process.pid, signal.SIGSTOP)
    await anyio.sleep(0.2)
    assert process.death() is None
    await process.stop(grace_seconds=0.1)
    assert procfs.token_holders(plan.token) == set()


async def test_second_stop_shortens_the_grace_of_the_first(tmp_path: Path) -> None:
    process = await EngineProcess.start(fake_plan(tmp_path, "ignore_sigterm"))
    children_of(tmp_path)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(process.stop, 60)
            await anyio.sleep(0.2)
            group.start_soon(process.stop, 0)


async def test_stop_runs_to_its_end_when_its_task_is_cancelled(tmp_path: Path) -> None:
    plan = fake_plan(tmp_path, "family")
    process = await EngineProcess.start(plan)
    children_of(tmp_path)
    with anyio.move_on_after(0.05):
        await process.stop(grace_seconds=0.3)
    assert procfs.token_holders(plan.token) == set()


async def test_leaving_the_block_by_an_error_stops_the_engine(tmp_path: Path) -> None:
    plan = fake_plan(tmp_path, "sleep")
    with pytest.raises(ZeroDivisionError):
        async with await EngineProcess.start(plan):
            raise ZeroDivisionError
    assert procfs.token_holders(plan.token) == set()


async def test_stop_after_stop_and_after_death_does_no_harm(tmp_path: Path) -> None:
    process = await EngineProcess.start(fake_plan(tmp_path, "signal", "9"))
    await process.wait()
    await process.stop()
    await process.stop()


@pytest.mark.parametrize(("command", "code", "number"), [(("signal", "11"), None, 11), (("environment",), 0, None)])
async def test_end_of_the_launched_process_is_told(
    tmp_path: Path, command: tuple[str, ...], code: int | None, number: int | None
) -> None:
    async with await EngineProcess.start(fake_plan(tmp_path, *command)) as process:
        with anyio.fail_after(20):
            death = await process.wait()
    assert (death.role, death.code, death.signal) == ("engine", code, number)


async def test_children_of_an_engine_that_exited_are_ended_without_being_asked(tmp_path: Path) -> None:
    plan = fake_plan(tmp_path, "leave_child_and_exit", "7")
    process = await EngineProcess.start(plan)
    [child] = children_of(tmp_path)
    with anyio.fail_after(20):
        death = await process.wait()
    assert death.code == 7
    assert wait_for(lambda: not alive(child))
    await process.stop()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT])
async def test_death_of_a_watched_worker_is_noticed_while_its_parent_lives(tmp_path: Path, number: int) -> None:
    async with await EngineProcess.start(fake_plan(tmp_path, "worker")) as process:
        [worker] = children_of(tmp_path)
        process.watch({worker: "scheduler"})
        assert process.death() is None
        os.kill(worker, number)
        killed_ns = time.monotonic_ns()
        with anyio.fail_after(20):
            death = await process.wait()
        assert (death.role, death.pid, death.signal) == ("scheduler", worker, number)
        assert death.noticed_ns - killed_ns < NOTICE_NS
        assert alive(process.pid) and process.exit is None


async def test_worker_that_follows_its_parent_is_not_taken_for_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_module, "_SETTLING_NS", 20 * 10**9)
    async with await EngineProcess.start(fake_plan(tmp_path, "worker")) as process:
        [worker] = children_of(tmp_path)
        process.watch({worker: "scheduler"})
        os.kill(process.pid, signal.SIGSTOP)  # so that it does not collect its worker
        os.kill(worker, signal.SIGKILL)
        assert wait_for(lambda: not alive(worker))
        assert process.death() is None, "its parent's death may be on its way"
        os.kill(process.pid, signal.SIGKILL)
        with anyio.fail_after(20):
            death = await process.wait()
        assert (death.role, death.signal) == ("engine", signal.SIGKILL)


async def test_stopped_worker_does_not_count_as_dead(tmp_path: Path) -> None:
    async with await EngineProcess.start(fake_plan(tmp_path, "worker")) as process:
        [worker] = children_of(tmp_path)
        process.watch({worker: "scheduler"})
        os.kill(worker, signal.SIGSTOP)
        await anyio.sleep(0.2)
        assert process.death() is None


async def test_worker_that_is_gone_before_it_is_watched_counts_as_dead(tmp_path: Path, gone: int) -> None:
    async with await EngineProcess.start(fake_plan(tmp_path, "sleep")) as process:
        process.watch({gone: "scheduler"})
        with anyio.fail_after(20):
            death = await process.wait()
        assert (death.role, death.code, death.signal) == ("scheduler", None, None)


async def test_killing_the_warden_ends_the_engine_and_is_noticed(tmp_path: Path) -> None:
    plan = fake_plan(tmp_path, "family")
    process = await EngineProcess.start(plan)
    children = children_of(tmp_path)
    stat = procfs.read_stat(process.pid)
    assert stat is not None
    os.kill(stat.parent, signal.SIGKILL)
    with anyio.fail_after(20):
        death = await process.wait()
    assert death.role == "warden"
    assert wait_for(lambda: not alive(process.pid))
    await process.stop()
    assert procfs.token_holders(plan.token) == set()
    os.kill(children[-1], signal.SIGKILL)  # no token and no warden: this one alone cannot be found


@pytest.fixture
def shallow() -> Iterator[str]:
    """A folder of a short path: pytest's own can be too deep for a socket."""
    with tempfile.TemporaryDirectory() as folder:
        yield folder


async def test_temporary_files_go_although_somebody_killed_the_warden(tmp_path: Path, shallow: str) -> None:
    plan = fake_plan(tmp_path, "temporary_file")
    process = await EngineProcess.start(replace(plan, environment={**plan.environment, "TMPDIR": shallow}))
    assert wait_for((tmp_path / "written").exists)
    scratch = Path((tmp_path / "written").read_text()).parent
    stat = procfs.read_stat(process.pid)
    assert stat is not None and str(scratch.parent) == shallow
    os.kill(stat.parent, signal.SIGKILL)
    await process.stop()
    assert not alive(process.pid) and os.listdir(shallow) == []  # noqa: PTH208


@pytest.mark.parametrize("interpreter", ["/no/such/python", "/"])
async def test_interpreter_that_cannot_be_run_is_named(tmp_path: Path, interpreter: str) -> None:
    plan = fake_plan(tmp_path, argv=(interpreter, "-m", "sglang.launch_server"))
    with pytest.raises(EngineNotStarted, match=f"^{interpreter}: (No such file|Permission denied)"):
        await EngineProcess.start(plan)


async def test_engine_sees_the_planned_environment_and_no_other(tmp_path: Path) -> None:
    plan = replace(fake_plan(tmp_path, "environment"), environment={"ONLY": "this", procfs.TOKEN_VARIABLE: "t"})
    async with await EngineProcess.start(plan) as process:
        await process.wait()
    seen = {line.partition("=")[0] for line in process.log_tail().splitlines()}
    # The folder for temporary files is the warden's to say, and Python itself sets the other one.
    assert seen - {"TMPDIR", "LC_CTYPE"} == {"ONLY", procfs.TOKEN_VARIABLE}


async def test_arguments_are_not_read_by_a_shell(tmp_path: Path) -> None:
    said = "$(touch hacked); `touch hacked` > hacked"
    async with await EngineProcess.start(fake_plan(tmp_path, "say", said)) as process:
        assert wait_for(lambda: said in process.log_tail())
    assert not (tmp_path / "hacked").exists()


async def test_log_tail_gives_the_last_lines_and_bears_bytes_that_are_no_text(tmp_path: Path) -> None:
    async with await EngineProcess.start(fake_plan(tmp_path, "sleep")) as process:
        process.plan.log.write_bytes(b"".join(b"line %d \xff\n" % number for number in range(1000)))
        assert process.log_tail(2).splitlines() == ["line 998 \ufffd", "line 999 \ufffd"]


async def test_device_logs_are_found_wherever_the_runtime_put_them(tmp_path: Path) -> None:
    async with await EngineProcess.start(fake_plan(tmp_path, "sleep")) as process:
        assert process.device_log_tail() == ""
        for name in ("debug/plog/plog-12_1.log", "debug/device-0/device-12_1.log"):
            (tmp_path / "plog" / name).parent.mkdir(parents=True)
            (tmp_path / "plog" / name).write_text(f"first\n[ERROR] of {name}\n")
        assert process.device_log_tail(1).splitlines() == [
            "[ERROR] of debug/device-0/device-12_1.log",
            "[ERROR] of debug/plog/plog-12_1.log",
        ]


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.engine.process.fake_controller", str(tmp_path), "0.2"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
async def test_nothing_is_left_when_the_controller_dies(
    tmp_path: Path, controller: subprocess.Popen[str], number: int
) -> None:
    assert controller.stdout is not None
    token, engine = controller.stdout.readline().split()
    family = [int(engine), *children_of(tmp_path)]
    assert all(alive(pid) for pid in family)
    controller.send_signal(number)
    controller.wait(20)
    assert wait_for(lambda: not any(map(alive, family)) and not procfs.token_holders(token))
