"""Claims about the nightly soak's script, on a served controller without an engine."""

from __future__ import annotations

import contextlib
import importlib.util
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import uvicorn

from service.api.app import create_app
from service.api.serving import listen
from service.controller import build_controller
from service.home import Home
from service.spec.faults import Fault
from tests.dashboards.boards import ROOT
from tests.fake_executor import CRASH, FakeExecutor

pytestmark = pytest.mark.timeout(60)


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("nightly_soak", ROOT / "deploy/nightly_soak.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


nightly = load()


@contextlib.contextmanager
def served(folder: Path, executor: FakeExecutor) -> Iterator[str]:
    """A controller's address."""
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(create_app(build_controller(Home(folder), executor)), log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join()


@pytest.mark.parametrize(
    ("executor", "code", "told"),
    [
        (FakeExecutor, 0, "finished, verdict pass"),
        (lambda: FakeExecutor(crash=CRASH), 1, "finished, verdict fail: crashes is 1"),
        (lambda: FakeExecutor(starts=False), 4, "failed_to_start, verdict inconclusive"),
    ],
    ids=["pass", "fail", "no engine"],
)
def test_exit_code_is_the_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], executor: type[FakeExecutor], code: int, told: str
) -> None:
    spec = tmp_path / "nightly.yaml"
    spec.write_text("name: nightly\nload: {duration: 2h}\n")
    with served(tmp_path, executor()) as controller:
        assert nightly.main([controller, str(spec)], poll_seconds=0.05) == code
    assert told in capsys.readouterr().out


def test_refused_spec_is_told_as_it_was_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    executor = FakeExecutor()
    executor.faults = [Fault(field="engine.name", value=None, message="there is no engine")]
    with served(tmp_path, executor) as controller:
        assert nightly.main([controller]) == 2
    assert "there is no engine" in capsys.readouterr().err


def test_missing_controller_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert nightly.main(["http://127.0.0.1:1"]) == 4
    assert "does not answer" in capsys.readouterr().err


def test_wrong_usage_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert nightly.main([]) == 2
    assert "Usage" in capsys.readouterr().err
