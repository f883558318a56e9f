"""Which processes belong to an engine, read from `/proc`. Standard library only: the warden uses it as well.

An engine's processes are told by a token in their environment. SGLang renames its scheduler and detokenizer with
setproctitle, which overwrites the environment that `/proc` shows unless SPT_NOENV is set; the launch plan sets it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

TOKEN_VARIABLE = "LASTPAGE_TOKEN"

_PROC = Path("/proc")
_DEAD_STATES = frozenset("ZX")


@dataclass(frozen=True)
class ProcessStat:
    """One line of `/proc/PID/stat`; see proc(5).

    Attributes:
        state: R, S, D, T (stopped), Z (zombie), X (dead), ...
        threads: those that have not ended, the first one always counted.
        started: clock ticks since boot; together with the pid it names one process for good.
        wait_status: as waitpid() would give it; only means something for a zombie.
    """

    pid: int
    state: str
    parent: int
    session: int
    threads: int
    started: int
    wait_status: int

    @property
    def alive(self) -> bool:
        """Whether it still runs or can run again. A stopped process is alive, a zombie is not.

        A process shows as a zombie when its first thread has ended; until the last one has, its sockets stay open.
        """
        return self.state not in _DEAD_STATES or self.threads > 1


def read_stat(pid: int) -> ProcessStat | None:
    """The process with this pid; None when there is none."""
    try:
        line = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name stands in parentheses and may hold anything, parentheses and spaces included.
    fields = line[line.rindex(")") + 2 :].split()
    return ProcessStat(
        pid=pid,
        state=fields[0],
        parent=int(fields[1]),
        session=int(fields[3]),
        threads=int(fields[17]),
        started=int(fields[19]),
        wait_status=int(fields[49]),
    )


def read_all() -> dict[int, ProcessStat]:
    """Every process that this one can see, by pid."""
    stats = (read_stat(int(entry.name)) for entry in _PROC.iterdir() if entry.name.isdecimal())
    return {stat.pid: stat for stat in stats if stat is not None}


def descendants(root: int, processes: Mapping[int, ProcessStat]) -> set[int]:
    """The pids of all children of `root`, their children, and so on."""
    children: dict[int, list[int]] = {}
    for stat in processes.values():
        children.setdefault(stat.parent, []).append(stat.pid)
    found: set[int] = set()
    pending = [root]
    while pending:
        for child in children.get(pending.pop(), ()):
            if child not in found:
                found.add(child)
                pending.append(child)
    return found


def holds_token(pid: int, token: str) -> bool:
    """Whether the process was started with our token in its environment."""
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    return f"{TOKEN_VARIABLE}={token}".encode() in environment.split(b"\0")


def token_holders(token: str) -> set[int]:
    """The pids of all living processes that were started with our token in their environment."""
    return {pid for pid, stat in read_all().items() if stat.alive and holds_token(pid, token)}


def title(pid: int) -> str:
    """The command line as the process shows it, with spaces; empty when it is gone."""
    try:
        shown = (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return ""
    return shown.replace(b"\0", b" ").decode(errors="replace").strip()


def shared_memory(pid: int) -> set[str]:
    """Files of SGLang's in shared memory that the process has mapped. SGLang leaves one there at each launch."""
    try:
        lines = (_PROC / str(pid) / "maps").read_text(errors="replace").splitlines()
    except OSError:
        return set()
    paths = {line[line.index("/") :] for line in lines if "/dev/shm/" in line}
    return {path for path in paths if path.startswith("/dev/shm/sgl") and not path.endswith(" (deleted)")}
