"""Which processes a test has left behind, told by a mark in the environment that all of them inherit."""

from __future__ import annotations

import os
from pathlib import Path

from service.engine.process import procfs

MARK_VARIABLE = "LASTPAGE_TEST_MARK"


def marked(mark: str, *, engines_only: bool = False) -> dict[int, str]:
    """Living processes with the mark, by pid, with what they run. Not this one.

    Args:
        engines_only: only those that also have a token, which the controller gives to engines.
    """
    wanted = [f"{MARK_VARIABLE}={mark}".encode()]
    if engines_only:
        wanted.append(f"{procfs.TOKEN_VARIABLE}=".encode())
    return {
        pid: procfs.title(pid)
        for pid, stat in procfs.read_all().items()
        if stat.alive and pid != os.getpid() and _has_all(pid, wanted)
    }


def token_of(pid: int) -> str:
    """The token of an engine's process."""
    prefix = f"{procfs.TOKEN_VARIABLE}=".encode()
    return next(entry.removeprefix(prefix).decode() for entry in _environment(pid) if entry.startswith(prefix))


def _has_all(pid: int, wanted: list[bytes]) -> bool:
    entries = _environment(pid)
    return all(any(entry.startswith(start) for entry in entries) for start in wanted)


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
