from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from service.engine.process.ports import free_port
from service.engine.process.process import EngineProcess
from service.engine.process.readiness import EngineNotReady, EngineRefused, Ready, wait_ready
from tests.engine.process.launches import fake_plan, wait_for

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

ROOT = Path(__file__).resolve().parents[3]
FAKE_SERVER = Path(__file__).with_name("fake_server.py")

Launch = Callable[..., Awaitable[EngineProcess]]


@pytest.fixture
async def launch(tmp_path: Path) -> AsyncIterator[Launch]:
    async with AsyncExitStack() as stack:

        async def launch_server(**order: Any) -> EngineProcess:
            plan = fake_plan(tmp_path, port=order.pop("port", None) or free_port())
            order = {
                "port": plan.port,
                "name": plan.served_model_name,
                "flight": str(plan.flight),
                "completions": ["done"],
                **order,
            }
            plan = replace(
                plan,
                argv=(sys.executable, str(FAKE_SERVER), json.dumps(order)),
                environment={**plan.environment, "PYTHONPATH": str(ROOT)},
            )
            return await stack.enter_async_context(await EngineProcess.start(plan))

        yield launch_server


@pytest.fixture
def other_server() -> Iterator[Callable[[str | None], int]]:
    """Starts a server of somebody else, and gives its port."""
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str | None) -> int:
        port = free_port()
        order = {"port": port, "name": name, "recording": "none", "completions": ["done"]}
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        started.append(subprocess.Popen([sys.executable, str(FAKE_SERVER), json.dumps(order)], env=environment))
        assert wait_for(lambda: answers(port))
        return port

    yield start
    for process in started:
        process.kill()
        process.wait()


def answers(port: int) -> bool:
    try:
        httpx.get(f"http://127.0.0.1:{port}/model_info", trust_env=False)
    except httpx.TransportError:
        return False
    return True


async def ready(process: EngineProcess, seconds: float = 30) -> Ready:
    return await wait_ready(process.plan, process, deadline_seconds=seconds)


async def test_server_is_ready_when_a_completion_came_back_and_was_recorded(launch: Launch) -> None:
    process = await launch(listen_after=0.3)
    before = time.monotonic_ns()
    found = await ready(process)
    assert before < found.ready_ns < time.monotonic_ns()
    assert (found.sglang_version, found.page_size, found.pool_pages, found.pool_tokens) == ("0.5.23", 128, 32, 4096)
    assert found.scheduler_pid == process.pid  # here one process plays all parts


async def test_scheduler_is_watched_from_then_on(launch: Launch) -> None:
    """Without our asking for it: the scheduler is the process that opened the recording."""
    process = await launch(recording_in_child=True)
    found = await ready(process)
    assert found.scheduler_pid not in (None, process.pid)
    os.kill(found.scheduler_pid or 0, signal.SIGKILL)
    with anyio.fail_after(20):
        death = await process.wait()
    assert (death.role, death.signal) == ("scheduler", signal.SIGKILL)
    assert process.exit is None


async def test_answers_that_are_no_completion_do_not_count(launch: Launch) -> None:
    """A 200 with an abort in band, or with no token, is not success."""
    process = await launch(completions=["error", "abort", "truncated", "done"])
    await ready(process)
    assert process.log_tail().count("POST /generate") == 4


@pytest.mark.parametrize(
    ("completions", "seen"),
    [(["truncated", "abort"], "'abort'"), (["error", "truncated"], "0 tokens instead of 8")],
)
async def test_deadline_error_says_what_was_seen_last(launch: Launch, completions: list[str], seen: str) -> None:
    with pytest.raises(EngineNotReady, match=r"not ready within 1.5 s") as raised:
        await ready(await launch(completions=completions), seconds=1.5)
    assert seen in raised.value.reason
    assert "The server is starting" in raised.value.log_tail


async def test_server_that_accepts_and_never_answers_meets_the_deadline(launch: Launch) -> None:
    with pytest.raises(EngineNotReady, match="not ready within 1 s"):
        await ready(await launch(completions=["hang"]), seconds=1)


async def test_server_that_never_listens_meets_the_deadline(launch: Launch) -> None:
    with pytest.raises(EngineNotReady, match="no answer on port"):
        await ready(await launch(listen_after=600), seconds=1)


async def test_engine_that_exits_is_told_with_the_end_of_its_log(launch: Launch) -> None:
    process = await launch(say="ValueError: unknown argument", exit=2)
    with pytest.raises(EngineNotReady, match=r"exited with code 2") as raised:
        await ready(process)
    assert "ValueError: unknown argument" in str(raised.value)
    assert not isinstance(raised.value, EngineRefused)


async def test_engine_that_the_plugin_refused_is_told_in_the_plugins_words(launch: Launch) -> None:
    said = "lastpage: this engine cannot be instrumented, so it is not started. UnexpectedAllocator: no such class"
    with pytest.raises(EngineRefused) as raised:
        await ready(await launch(say=said, exit=1))
    assert raised.value.reason == said


@pytest.mark.parametrize(("name", "who"), [("somebody", "'somebody'"), (None, "HTTP 404")])
async def test_another_server_on_the_port_is_not_taken_for_ours(
    launch: Launch, other_server: Callable[[str | None], int], name: str | None, who: str
) -> None:
    port = await anyio.to_thread.run_sync(other_server, name)
    process = await launch(port=port, listen_after=600)
    with pytest.raises(EngineNotReady, match=f"port {port} is answered by another server") as raised:
        await ready(process)
    assert who in raised.value.reason


@pytest.mark.parametrize(
    ("recording", "reason"),
    [
        ("none", "recorded nothing"),
        ("idle", "not through the allocator"),
        ("other_page_size", "the engine's is 64, planned was 128"),
        ("other_pool", "the engine's has 31 pages, planned were 32"),
    ],
)
async def test_half_instrumented_engine_is_refused(launch: Launch, recording: str, reason: str) -> None:
    with pytest.raises(EngineRefused, match=reason):
        await ready(await launch(recording=recording))


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "all_proxy"])
async def test_proxy_of_the_environment_is_not_asked(
    launch: Launch, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    await ready(await launch())
