"""Launch plans for fake engines, and what is left of them."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable
from pathlib import Path

from service.engine.process import procfs
from service.engine.process.command import LaunchPlan
from service.plugin.settings import Allocator, Profile

FAKE_ENGINE = Path(__file__).with_name("fake_engine.py")


def fake_plan(folder: Path, *command: str, argv: tuple[str, ...] | None = None, port: int = 1) -> LaunchPlan:
    """A plan that runs `fake_engine.py` with these arguments, or `argv` instead."""
    token = secrets.token_hex(16)
    return LaunchPlan(
        argv=argv or (sys.executable, str(FAKE_ENGINE), *command),
        environment={**os.environ, procfs.TOKEN_VARIABLE: token, "TMPDIR": str(folder)},
        port=port,
        served_model_name=f"lastpage-{token[:12]}",
        token=token,
        folder=folder,
        flight=folder / "flight.bin",
        log=folder / "engine.log",
        profile=Profile.REHEARSAL,
        allocator=Allocator.INSTALLED,
        page_size=128,
        pool_pages=32,
        grace_seconds=0.2,
    )


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def children_of(folder: Path) -> list[int]:
    """The pids that the fake engine wrote down."""
    file = folder / "children"
    assert wait_for(file.exists)
    return [int(line) for line in file.read_text().splitlines()]


def alive(pid: int) -> bool:
    stat = procfs.read_stat(pid)
    return stat is not None and stat.alive
