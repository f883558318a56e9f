from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.engine import procfs, warden
from tests.engine.launches import FAKE_ENGINE, alive, children_of, wait_for

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "token-of-the-warden-test"


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., subprocess.Popen[bytes]]:
    def start_warden(*command: str, grace: float = 0.2) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", warden.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        order = warden.Order(
            arguments=[sys.executable, str(FAKE_ENGINE), *command],
            environment={procfs.TOKEN_VARIABLE: TOKEN},
            folder=str(tmp_path),
            log=str(tmp_path / "engine.log"),
            token=TOKEN,
            grace=grace,
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


def test_kernel_kills_the_engine_of_a_killed_warden(start: Callable[..., subprocess.Popen[bytes]]) -> None:
    process = start("ignore_sigterm")
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
