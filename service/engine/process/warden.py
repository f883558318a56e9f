"""Warden: a small process between the controller and an engine, which leaves no process behind.

It starts the engine and outlives whatever ends it: a stop, a crash, or the controller's own death by any cause. Then
it ends every process of the engine, also those that left the process group or lost their parent:

* the engine is the leader of a session of its own, and SIGTERM, then SIGKILL, is what it gets;
* the warden is a child subreaper, so a process whose parent is gone becomes the warden's child, not that of pid 1;
* every process with our token in its environment is killed as well, whoever its parent is;
* the engine's temporary files are in a folder of its own, which is removed at the end, as are its files in shared
  memory: those that the controller names, and until it names any, those that the warden sees itself;
* were the warden itself killed, the kernel kills the engine (PDEATHSIG), and SGLang's workers ask for the same.

Standard library only. JSON lines, both ways::

    stdin   {"arguments": [...], "environment": {...}, "folder": "...", "log": "...", "token": "...", "grace": 5.0}
            {"remove": ["...", ...]} files to remove at the end
            {"stop": SECONDS}        end the engine: SIGTERM now, SIGKILL after SECONDS
            end of file              the controller is gone: the same, with the order's grace
    stdout  {"event": "started", "pid": PID, "scratch": "..."}    or {"event": "refused", "reason": "..."}
            {"event": "exited", "returncode": N}  the engine's own process; negative for a signal
            {"event": "gone", "survivors": [PID, ...]}     and then the warden ends
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from service.engine.process import procfs

SWEEP_SECONDS = 10.0
# SGLang puts sockets into its folder for temporary files, and the path of a socket has at most 107 bytes.
_LONGEST_SCRATCH = 80
_SWEEP_INTERVAL_SECONDS = 0.02
_LOOK_SECONDS = 0.5
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Order:
    """What to start, and how.

    Attributes:
        folder: the engine's working directory.
        log: file that the engine's stdout and stderr are appended to.
        token: value of LASTPAGE_TOKEN in `environment`.
        grace: seconds between SIGTERM and SIGKILL when the controller is gone.
    """

    arguments: list[str]
    environment: dict[str, str]
    folder: str
    log: str
    token: str
    grace: float


class Warden:
    """One engine's warden. Single-threaded: a thread's end would look like a parent's death to PDEATHSIG."""

    def __init__(self, order: Order, commands: int, reports: int, *, already_read: bytes = b"") -> None:
        """`commands` and `reports` are file descriptors: the pipe from the controller and the pipe to it."""
        self._order = order
        self._commands = commands
        self._reports = reports
        self._unread = b""
        self._grace: float | None = None
        self._remove: set[str] = set()
        self._told = False
        self._take(already_read)

    def run(self) -> None:
        """Start the engine, wait for its end or for the order to end it, and leave nothing behind."""
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        wakeups = self._wake_on_signals()
        with self._litter() as scratch:
            engine = self._start(libc, scratch)
            if engine is None:
                return
            self._watch(engine, wakeups)
            survivors = self._sweep(engine)
        self._report(event="gone", survivors=survivors)

    @contextlib.contextmanager
    def _litter(self) -> Iterator[str | None]:
        """A new folder for temporary files, None when there can be none; it and the named files go at the end."""
        scratch = None
        with contextlib.suppress(OSError):
            scratch = tempfile.mkdtemp(prefix="lastpage-", dir=self._order.environment.get("TMPDIR"))
        if scratch is not None and len(os.fsencode(scratch)) > _LONGEST_SCRATCH:
            Path(scratch).rmdir()
            scratch = None
        try:
            yield scratch
        finally:
            if scratch is not None:
                shutil.rmtree(scratch, ignore_errors=True)
            for file in self._remove:
                with contextlib.suppress(OSError):
                    Path(file).unlink()

    def _wake_on_signals(self) -> int:
        readable, writable = os.pipe()
        os.set_blocking(readable, False)
        os.set_blocking(writable, False)
        signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._ask_to_stop)
        return readable

    def _ask_to_stop(self, *_: object) -> None:
        self._grace = self._order.grace

    def _start(self, libc: ctypes.CDLL, scratch: str | None) -> subprocess.Popen[bytes] | None:
        """The engine's process; None, and reported, when the system refuses to start it."""
        warden = os.getpid()

        def die_with_the_warden() -> None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != warden:
                os._exit(127)

        environment = {**self._order.environment, **({"TMPDIR": scratch} if scratch else {})}
        try:
            with Path(self._order.log).open("ab") as log:
                engine = subprocess.Popen(
                    self._order.arguments,
                    env=environment,
                    cwd=self._order.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    preexec_fn=die_with_the_warden,
                )
        except OSError as error:
            self._report(event="refused", reason=f"{self._order.arguments[0]}: {error.strerror or error}")
            return None
        self._report(event="started", pid=engine.pid, scratch=scratch)
        return engine

    def _watch(self, engine: subprocess.Popen[bytes], wakeups: int) -> None:
        """Return when the engine's own process has ended, or when its grace is over."""
        poller = select.poll()
        poller.register(self._commands, select.POLLIN | select.POLLHUP)
        poller.register(wakeups, select.POLLIN)
        kill_at: float | None = None
        while not self._reap(engine):
            if not self._told:
                # Once it serves it is not looked at, which would disturb it.
                self._note_shared_memory(self._remaining(engine.pid))
            if self._grace is not None:
                if kill_at is None:
                    # To SGLang's own process alone: it then has its workers let go of the device and leave, where a
                    # worker that gets a SIGTERM of its own is taken for a crash.
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(engine.pid, signal.SIGTERM)
                wanted = time.monotonic() + self._grace
                kill_at = wanted if kill_at is None else min(kill_at, wanted)
                self._grace = None
            if kill_at is not None and time.monotonic() >= kill_at:
                return
            left = None if kill_at is None else max(0.0, kill_at - time.monotonic()) * 1000 + 1
            if not self._told:
                left = min(left or _LOOK_SECONDS * 1000, _LOOK_SECONDS * 1000)
            for descriptor, _ in poller.poll(left):
                if descriptor == wakeups:
                    os.read(wakeups, 4096)
                elif not self._read_commands():
                    poller.unregister(self._commands)
                    self._grace = self._order.grace

    def _read_commands(self) -> bool:
        """Take in what the controller wrote; False when the controller is gone."""
        data = os.read(self._commands, 65536)
        self._take(data)
        return bool(data)

    def _take(self, data: bytes) -> None:
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            command = json.loads(line)
            self._remove |= set(command.get("remove", ()))
            self._told |= "remove" in command
            if "stop" in command:
                self._grace = float(command["stop"])

    def _reap(self, engine: subprocess.Popen[bytes]) -> bool:
        """Collect ended children, adopted ones too. True when the engine's own process has ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return engine.returncode is not None
            if pid == 0:
                return engine.returncode is not None
            if pid == engine.pid:
                engine.returncode = os.waitstatus_to_exitcode(status)
                self._report(event="exited", returncode=engine.returncode)

    def _sweep(self, engine: subprocess.Popen[bytes]) -> list[int]:
        """SIGKILL everything that is the engine's until nothing is left; returns what would not die in time."""
        deadline = time.monotonic() + SWEEP_SECONDS
        while True:
            self._reap(engine)
            remaining = self._remaining(engine.pid)
            if (not remaining and engine.returncode is not None) or time.monotonic() >= deadline:
                return sorted(remaining)
            self._note_shared_memory(remaining)
            for pid in remaining:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_SWEEP_INTERVAL_SECONDS)

    def _note_shared_memory(self, processes: set[int]) -> None:
        """Have these processes' files in shared memory removed at the end."""
        self._remove.update(*map(procfs.shared_memory, processes))

    def _remaining(self, session: int) -> set[int]:
        processes = procfs.read_all()
        ours = procfs.descendants(os.getpid(), processes)
        ours |= {pid for pid, stat in processes.items() if stat.session == session}
        ours |= {pid for pid in processes if procfs.holds_token(pid, self._order.token)}
        return {pid for pid in ours if processes[pid].alive} - {os.getpid()}

    def _report(self, **fields: object) -> None:
        # The reader may be gone: the work goes on all the same.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._reports, json.dumps(fields).encode() + b"\n")


def main() -> None:
    """Read the order from stdin and carry it out."""
    commands, reports = sys.stdin.fileno(), sys.stdout.fileno()
    data = b""
    while b"\n" not in data:
        more = os.read(commands, 65536)
        if not more:
            return
        data += more
    order, _, rest = data.partition(b"\n")
    Warden(Order(**json.loads(order)), commands, reports, already_read=rest).run()


if __name__ == "__main__":
    main()
