from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.engine.process import procfs, warden
from tests.engine.process.launches import FAKE_ENGINE, alive, children_of, wait_for

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[3]
TOKEN = f"token-of-the-warden-test-{os.getpid()}"  # what a warden sweeps must not be that of a test running beside it


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., subprocess.Popen[bytes]]:
    def start_warden(*command: str, temporary: str | None = None) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", warden.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        order = warden.Order(
            arguments=[sys.executable, str(FAKE_ENGINE), *command],
            environment={procfs.TOKEN_VARIABLE: TOKEN, **({"TMPDIR": temporary} if temporary else {})},
            folder=str(tmp_path),
            log=str(tmp_path / "engine.log"),
            token=TOKEN,
            grace=0.2,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(vars(order)).encode() + b"\n")
        process.stdin.flush()
        return process

    return start_warden


def report(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout is not None
    line: dict[str, Any] = json.loads(process.stdout.readline())
    return line


def test_end_of_the_pipe_ends_the_engine(tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]) -> None:
    process = start("family")
    engine = report(process)["pid"]
    children = children_of(tmp_path)
    assert process.stdin is not None
    process.stdin.close()
    assert report(process) == {"event": "exited", "returncode": -15}
    assert report(process) == {"event": "gone", "survivors": []}
    assert process.wait(20) == 0
    assert not any(map(alive, [engine, *children]))


def test_grace_passes_between_sigterm_and_sigkill(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    process = start("ignore_sigterm")
    report(process)
    children_of(tmp_path)
    assert process.stdin is not None
    started = time.monotonic()
    process.stdin.write(b'{"stop": 0.4}\n')
    process.stdin.flush()
    assert report(process) == {"event": "exited", "returncode": -9}
    assert time.monotonic() - started >= 0.4
    assert process.wait(20) == 0


def test_warden_that_is_terminated_ends_the_engine_first(start: Callable[..., subprocess.Popen[bytes]]) -> None:
    process = start("sleep")
    engine = report(process)["pid"]
    process.terminate()
    assert process.wait(20) == 0
    assert not alive(engine)


def test_kernel_kills_the_engine_of_a_killed_warden(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    process = start("ignore_sigterm", temporary=str(tmp_path))
    engine = report(process)["pid"]
    process.kill()
    assert wait_for(lambda: not alive(engine))


def test_warden_without_an_order_ends() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run([sys.executable, "-m", warden.__name__], input=b"", env=environment, timeout=20)
    assert ended.returncode == 0


def test_engine_leads_a_session_of_its_own(start: Callable[..., subprocess.Popen[bytes]]) -> None:
    process = start("sleep")
    engine = report(process)["pid"]
    assert os.getsid(engine) == os.getpgid(engine) == engine
    process.terminate()
    process.wait(20)


def test_temporary_files_of_the_engine_are_in_a_folder_of_its_own_that_is_removed(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    with tempfile.TemporaryDirectory() as shallow:  # pytest's own folders can be too deep for a socket
        process = start("temporary_file", temporary=shallow)
        report(process)
        assert wait_for((tmp_path / "written").exists)
        file = Path((tmp_path / "written").read_text())
        assert file.exists() and file.parent.parent == Path(shallow) and file.parent.name.startswith("lastpage-")
        process.terminate()
        assert process.wait(20) == 0
        assert not file.parent.exists()


def test_folder_that_is_too_deep_for_a_socket_is_not_used(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    deep = tmp_path / ("d" * 80)
    deep.mkdir()
    process = start("temporary_file", temporary=str(deep))
    report(process)
    assert wait_for((tmp_path / "written").exists)
    assert Path((tmp_path / "written").read_text()).parent == deep
    process.terminate()
    process.wait(20)
    assert [path.name.startswith("lastpage-") for path in deep.iterdir()] == [False]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_shared_memory_of_an_engine_that_never_became_ready_is_removed(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]], number: int
) -> None:
    process = start("shared_memory")
    engine = report(process)["pid"]
    assert wait_for((tmp_path / "mapped").exists)
    shared = Path((tmp_path / "shared").read_text())
    assert shared.exists()
    if number == signal.SIGTERM:
        process.terminate()
    else:
        os.kill(engine, number)
    assert process.wait(20) == 0
    assert not shared.exists()


def test_named_files_are_removed_at_the_end_and_not_before(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    process = start("sleep")
    report(process)
    litter = tmp_path / "litter"
    litter.touch()
    assert process.stdin is not None
    process.stdin.write(json.dumps({"remove": [str(litter), str(tmp_path / "gone")]}).encode() + b"\n")
    process.stdin.flush()
    time.sleep(0.1)
    assert litter.exists()
    process.terminate()
    assert process.wait(20) == 0
    assert not litter.exists()
