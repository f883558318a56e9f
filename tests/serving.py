"""`lastpage serve` as a process, which must leave in order when it is told to."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx

from service.home import Home
from tests.engine.process.launches import wait_for
from tests.real.soaks import LASTPAGE, ROOT

START_SECONDS, STOP_SECONDS = 30.0, 60.0
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")


@contextlib.contextmanager
def serving(home: Home) -> Iterator[httpx.Client]:
    """A service that keeps its files below `home`, and a client of it."""
    printed = home.root / "serve.log"
    with printed.open("w") as output:
        process = subprocess.Popen(
            [*LASTPAGE, "serve", "--port", "0"],
            cwd=ROOT,
            env={**os.environ, "LASTPAGE_HOME": str(home.root), "PYTHONUNBUFFERED": "1"},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        assert wait_for(lambda: _ADDRESS.search(printed.read_text()) is not None, START_SECONDS), printed.read_text()
        (address,) = set(_ADDRESS.findall(printed.read_text()))
        with httpx.Client(base_url=address, trust_env=False, timeout=60) as client:
            assert wait_for(lambda: _answers(client, "/readyz"), START_SECONDS), printed.read_text()
            yield client
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_SECONDS) == 0, printed.read_text()
    finally:
        process.kill()
        process.wait()


def run_at(api: httpx.Client, links: dict[str, str]) -> dict[str, Any]:
    """A run as the service shows it."""
    run: dict[str, Any] = api.get(links["self"]).json()
    return run


def _answers(api: httpx.Client, path: str) -> bool:
    try:
        return api.get(path).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False
