"""Claims about the way of a run before its engine is launched: a spec is looked up once, and what may change again."""

from __future__ import annotations

import socket
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import anyio
import pytest

from service.engine.process.ports import free_port
from service.engine.registry import EngineRegistry
from service.execution import supervisor
from service.execution.supervisor import Supervisor
from service.home import Home
from service.runs.model import Run, RunResult, RunStatus
from service.spec.faults import InvalidSpec
from service.spec.parsing import parse_spec
from service.spec.spec import RunSpec
from tests.engine.interpreters import answering

pytestmark = pytest.mark.anyio


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home").ensure()
    EngineRegistry(made).add("mine", answering(tmp_path / "engine" / "bin" / "python"))
    return made


class Launched(Exception):
    """An engine would have been launched."""


class NotLaunching:
    """In the place of what launches an engine."""

    def __init__(self, *_: Any) -> None:
        pass

    async def carry_out(self) -> RunResult:
        raise Launched


async def executed(home: Home, spec: RunSpec, monkeypatch: pytest.MonkeyPatch, between: Any = None) -> RunResult:
    """What becomes of a run that is checked, waits, and has its turn; without an engine."""
    monkeypatch.setattr(supervisor, "_RunExecution", NotLaunching)
    prepared = await Supervisor(home).preflight(spec)
    if between is not None:
        between()
    run = Run(id="r", spec=spec, folder=home.root, created_at=datetime.now(timezone.utc))
    return await prepared.execute(run, None, anyio.Event())  # type: ignore[arg-type]


async def test_a_spec_is_looked_up_once_for_a_run(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up = []
    prepare = supervisor.prepare

    def counted(*given: Any) -> Any:
        looked_up.append(given)
        return prepare(*given)

    monkeypatch.setattr(supervisor, "prepare", counted)
    with pytest.raises(Launched):
        await executed(home, RunSpec(), monkeypatch)
    assert len(looked_up) == 1


async def test_a_spec_that_cannot_work_is_refused_with_its_faults(home: Home) -> None:
    with pytest.raises(InvalidSpec, match="no such scenario"):
        await Supervisor(home).preflight(parse_spec({"load": {"scenario": "tihgt"}}))


async def test_a_port_that_is_taken_while_a_run_waits_keeps_it_from_starting(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as other:
        port = free_port()

        def take() -> None:
            other.bind(("127.0.0.1", port))
            other.listen()

        result = await executed(home, parse_spec({"engine": {"port": port}}), monkeypatch, take)
    assert result.status is RunStatus.FAILED_TO_START
    assert result.detail is not None and f"port {port} is taken by another process" in result.detail


async def test_an_engine_that_is_removed_while_a_run_waits_keeps_it_from_starting(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = await executed(home, RunSpec(), monkeypatch, (tmp_path / "engine" / "bin" / "python").unlink)
    assert result.status is RunStatus.FAILED_TO_START
    assert result.detail is not None and "is gone" in result.detail
