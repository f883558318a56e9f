"""The kernel's count of processes that it killed for lack of memory."""

from __future__ import annotations

from pathlib import Path

_VMSTAT = Path("/proc/vmstat")


def oom_kills() -> int:
    """Processes killed for lack of memory since this machine was started; 0 where the kernel does not count them."""
    try:
        lines = _VMSTAT.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
