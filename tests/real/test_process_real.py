"""The processes of a real server: what is there when it serves, how its death is noticed, and that nothing stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import httpx
import pytest

from service.engine.crash.classify import CrashKind, Evidence, classify
from service.engine.process import procfs
from service.engine.process.ports import check_port
from service.engine.process.process import EngineProcess
from service.engine.process.readiness import EngineRefused, wait_ready
from service.plugin.flight_reader import FlightReader
from tests.engine.process.launches import alive, wait_for
from tests.real.launches import rehearsal_plan

pytestmark = [pytest.mark.real, pytest.mark.anyio, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
NOTICE_NS = 500_000_000


def files_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder with a short path, in which the engine's temporary files are to be."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


async def test_stopped_scheduler_is_alive_and_its_whole_server_can_still_be_ended(
    tmp_path: Path, temporary: Path
) -> None:
    plan = rehearsal_plan(tmp_path, scenario_environment={"TMPDIR": str(temporary)})
    async with await EngineProcess.start(plan) as process:
        ready = await wait_ready(plan, process)
        assert (ready.sglang_version, ready.page_size, ready.pool_pages) == ("0.5.23", 128, 32)
        # SGLang renames its workers, which must not hide the token by which they are found.
        workers = process.workers()
        assert {"scheduler", "detokenizer"} <= {role.partition("_")[0] for role in workers.values()}
        assert ready.scheduler_pid in workers
        assert {process.pid, *workers} <= procfs.token_holders(plan.token)

        assert ready.scheduler_pid is not None
        os.kill(ready.scheduler_pid, signal.SIGSTOP)
        await anyio.sleep(1)
        assert process.death() is None
        assert files_in(temporary) != []
        shared = procfs.shared_memory(ready.scheduler_pid)
        assert shared != set()
        await process.stop(grace_seconds=1)
    assert procfs.token_holders(plan.token) == set()
    check_port(plan.port)
    assert shared.isdisjoint(map(str, files_in(Path("/dev/shm"))))
    assert files_in(temporary) == []


@pytest.mark.parametrize("release", ["0.5.23", "0.5.18"])
async def test_killed_scheduler_is_noticed_at_once_and_classified(tmp_path: Path, release: str) -> None:
    """Also: the tiny model's own tokenizer is good enough for a server that uses one."""
    plan = rehearsal_plan(tmp_path, release, tiny_model=False, user_arguments=["--load-format", "dummy"])
    async with await EngineProcess.start(plan) as process:
        ready = await wait_ready(plan, process)
        async with httpx.AsyncClient(base_url=plan.url, trust_env=False, timeout=60) as client:
            answer = await client.post("/generate", json={"text": "a b", "sampling_params": {"max_new_tokens": 4}})
        assert answer.json()["meta_info"]["prompt_tokens"] == 3

        assert ready.scheduler_pid is not None
        os.kill(ready.scheduler_pid, signal.SIGKILL)
        killed_ns = time.monotonic_ns()
        death = await process.wait()
        assert death.role.startswith("scheduler") and death.noticed_ns - killed_ns < NOTICE_NS
        await anyio.to_thread.run_sync(wait_for, lambda: process.exit is not None)
        await process.stop(grace_seconds=0)
    evidence = Evidence(exit_code=death.code, signal=death.signal, log=process.log_tail())
    assert classify(evidence).kind is CrashKind.KILLED
    assert FlightReader(plan.flight).totals().decode_steps > 0
    assert procfs.token_holders(plan.token) == set()
    check_port(plan.port)


async def test_server_that_the_plugin_cannot_instrument_is_refused_and_gone(tmp_path: Path) -> None:
    plan = rehearsal_plan(tmp_path, scenario_environment={"LASTPAGE_ALLOCATOR": "nonsense"})
    with pytest.raises(EngineRefused, match=r"cannot be instrumented, so it is not started.*nonsense"):
        async with await EngineProcess.start(plan) as process:
            await wait_ready(plan, process)
    assert procfs.token_holders(plan.token) == set()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_of_the_server_is_left_when_the_controller_dies(tmp_path: Path, number: int) -> None:
    grace_seconds = 3.0
    controller = subprocess.Popen(
        [sys.executable, "-m", "tests.real.controller", str(tmp_path), str(grace_seconds)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert controller.stdout is not None
        token, port, *pids = controller.stdout.readline().split()
        assert all(alive(int(pid)) for pid in pids)
        controller.send_signal(number)
        controller.wait(60)
    finally:
        controller.kill()
        controller.communicate()
    # A process that is being torn down shows no environment any more, so the pids are looked at as well.
    assert wait_for(
        lambda: not procfs.token_holders(token) and not any(alive(int(pid)) for pid in pids), grace_seconds + 10
    )
    check_port(int(port))
