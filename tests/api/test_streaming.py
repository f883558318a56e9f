"""Claims about event streams over a real connection: live events, keep-alive, disconnect, shutdown."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx
import pytest
import uvicorn

from service.api import runs
from service.api.app import create_app
from service.api.serving import ControllerServer
from service.controller import Controller, build_controller
from service.home import Home
from service.runs.model import RunStatus
from tests.fake_executor import FakeExecutor

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]


@asynccontextmanager
async def listening(
    tmp_path: Path, executor: FakeExecutor
) -> AsyncIterator[tuple[httpx.AsyncClient, ControllerServer, Controller]]:
    controller = build_controller(Home(tmp_path), executor)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(create_app(controller), log_level="warning", timeout_graceful_shutdown=5)
        server = ControllerServer(config, controller)
        async with anyio.create_task_group() as group:
            group.start_soon(server.serve, [listener])
            with anyio.fail_after(5):
                while not server.started:  # noqa: ASYNC110
                    await anyio.sleep(0.01)
            address = f"http://127.0.0.1:{listener.getsockname()[1]}"
            async with httpx.AsyncClient(base_url=address, timeout=5) as client:
                yield client, server, controller
            server.should_exit = True


async def test_events_come_as_they_happen_with_signs_of_life_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "KEEP_ALIVE_SECONDS", 0.05)
    executor = FakeExecutor(hold_at=RunStatus.RUNNING)
    async with listening(tmp_path, executor) as (client, _, _):
        run_id = (await client.post("/v1/runs", json={})).json()["id"]
        seen: list[str] = []
        async with client.stream("GET", f"/v1/runs/{run_id}/events") as stream:
            async for line in stream.aiter_lines():
                seen.append(line)
                if line.startswith(": ping"):
                    executor.release.set()
        assert seen.index("event: status") < seen.index("event: finished")
        assert [line for line in seen if line.startswith("event")][-1] == "event: finished"


async def test_a_watcher_that_hangs_up_disturbs_neither_the_run_nor_others(tmp_path: Path) -> None:
    executor = FakeExecutor(hold_at=RunStatus.RUNNING)
    async with listening(tmp_path, executor) as (client, server, _):
        run_id = (await client.post("/v1/runs", json={})).json()["id"]
        path = f"/v1/runs/{run_id}/events"
        async with httpx.AsyncClient(base_url=client.base_url) as rude, rude.stream("GET", path) as stream:
            await anext(stream.aiter_lines())
        async with client.stream("GET", path) as stream:
            executor.release.set()
            lines = [line async for line in stream.aiter_lines()]
        assert "event: finished" in lines
        with anyio.fail_after(5):
            while server.server_state.tasks:  # noqa: ASYNC110
                await anyio.sleep(0.01)


async def test_a_controller_told_to_stop_interrupts_the_run_and_tells_the_watchers(tmp_path: Path) -> None:
    executor = FakeExecutor(hold_at=RunStatus.RUNNING)
    async with listening(tmp_path, executor) as (client, server, controller):
        run_id = (await client.post("/v1/runs", json={})).json()["id"]
        async with client.stream("GET", f"/v1/runs/{run_id}/events") as stream:
            await executor.holding.wait()
            server.handle_exit(15, None)
            lines = [line async for line in stream.aiter_lines()]
        assert "event: finished" in lines
        assert '"status": "interrupted"' in "".join(lines)
        run = await controller.manager.get(run_id)
        assert (run.folder / "report.json").exists()
