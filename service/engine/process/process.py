"""An engine's process, seen from the controller: start, death noticed at once, stop that leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType

import anyio
import anyio.to_thread

from service.engine.process import procfs, warden
from service.engine.process.command import DEVICE_LOG_FOLDER, LaunchPlan
from service.engine.process.death import EngineDeath, first_death
from service.engine.process.warden_link import WardenLink
from service.errors import EngineError

POLL_SECONDS = 0.05
# So long it may take the warden to tell of the launched process's death, from which its workers' deaths follow.
_SETTLING_NS = 100_000_000
_START_SECONDS = 20.0
_KILL_SECONDS = 3.0
_TAIL_BYTES = 512 * 1024


class EngineNotStarted(EngineError):
    """The operating system would not start the engine's command."""


class EngineSurvived(EngineError):
    """Processes of the engine are still there after SIGKILL; the message names their pids."""


@dataclass(frozen=True)
class _Watched:
    role: str
    pid: int
    started: int


class EngineProcess:
    """A launched engine. As an async context manager it stops the engine at the end of the block.

    Nothing here runs in the background: `death()` looks, `wait()` looks every POLL_SECONDS. The warden, a process of
    its own, cleans up when this controller dies without calling `stop()`.
    """

    def __init__(self, plan: LaunchPlan, link: WardenLink) -> None:
        """Use `EngineProcess.start`."""
        self.plan = plan
        self._link = link
        self._watched: list[_Watched] = []
        self._death: EngineDeath | None = None
        self._follower: EngineDeath | None = None
        self._exit: EngineDeath | None = None

    @classmethod
    async def start(cls, plan: LaunchPlan) -> EngineProcess:
        """Launch the engine. Returns when its process exists; see `readiness` for when it serves.

        Raises:
            EngineNotStarted: the interpreter is not there, cannot be executed, ...
        """
        link = WardenLink.launch(
            arguments=plan.argv,
            environment=plan.environment,
            folder=plan.folder,
            log=plan.log,
            token=plan.token,
            grace_seconds=plan.grace_seconds,
        )
        process = cls(plan, link)
        try:
            if not await process._until(lambda: link.engine_pid is not None or link.ended, _START_SECONDS):
                raise EngineNotStarted(f"the engine's process did not appear within {_START_SECONDS:g} s")
            if link.engine_pid is None:
                raise EngineNotStarted(link.refusal or f"the warden failed; see {plan.log}")
        except BaseException:
            await process.stop(0)
            raise
        return process

    async def __aenter__(self) -> EngineProcess:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def pid(self) -> int:
        """The launched process, which is not SGLang's scheduler."""
        assert self._link.engine_pid is not None
        return self._link.engine_pid

    def watch(self, roles: Mapping[int, str]) -> None:
        """From now on count the death of these processes (role by pid) as the engine's death.

        SGLang's own process outlives its scheduler by seconds, so the scheduler has to be watched itself. What they
        have in shared memory is removed when the engine is gone.
        """
        for pid, role in roles.items():
            if pid == self.pid:
                continue
            stat = procfs.read_stat(pid)
            self._watched.append(_Watched(role, pid, stat.started if stat is not None else -1))
        self._link.remove_at_the_end(set().union(*map(procfs.shared_memory, (self.pid, *roles))))

    def workers(self) -> dict[int, str]:
        """SGLang's worker processes, role by pid, told by the titles that they give themselves (`sglang::ROLE`)."""
        pids = sorted(procfs.descendants(self.pid, procfs.read_all()))
        titles = {pid: procfs.title(pid) for pid in pids}
        return {pid: title.removeprefix("sglang::") for pid, title in titles.items() if title.startswith("sglang::")}

    def death(self) -> EngineDeath | None:
        """How the engine died; None while it lives. A stopped (SIGSTOP) process lives.

        The death of a worker that may follow from the launched process's is told a moment later than any other.
        """
        if self._death is None:
            self._death = self._first_death()
        return self._death

    def _first_death(self) -> EngineDeath | None:
        worker = self._follower or self._dead_worker()
        engine = self.exit
        if engine is not None:
            return engine if self._follower is not None else first_death(worker, engine)
        if worker is not None and worker.may_have_followed:
            self._follower = worker
            return worker if time.monotonic_ns() - worker.noticed_ns > _SETTLING_NS else None
        return worker

    @property
    def exit(self) -> EngineDeath | None:
        """How the launched process itself ended, which is later than `death()` when a worker died first."""
        link = self._link
        link.read()
        if self._exit is None and link.returncode is not None:
            self._exit = EngineDeath.of("engine", self.pid, link.returncode, time.monotonic_ns())
        elif self._exit is None and link.ended:
            # Somebody killed the warden, and the kernel the engine with it.
            self._exit = EngineDeath("warden", link.pid, None, None, time.monotonic_ns())
        return self._exit

    async def wait(self) -> EngineDeath:
        """Return when the engine is dead: within POLL_SECONDS of it."""
        while True:
            death = self.death()
            if death is not None:
                return death
            await anyio.sleep(POLL_SECONDS)

    async def stop(self, grace_seconds: float | None = None) -> None:
        """End the engine and every process of it: SIGTERM, after the grace SIGKILL. Runs to its end when cancelled.

        Safe to call more than once, and on an engine that is dead already.

        Args:
            grace_seconds: the plan's when None.

        Raises:
            EngineSurvived: a process would not die of SIGKILL (stuck in the kernel).
        """
        grace = self.plan.grace_seconds if grace_seconds is None else grace_seconds
        with anyio.CancelScope(shield=True):
            self._link.stop(grace)
            await self._until(lambda: self._link.ended, grace + warden.SWEEP_SECONDS + 2)
            self._link.close()
            survivors = await anyio.to_thread.run_sync(_kill_remaining, self.plan.token, self._link.survivors)
            if self._link.scratch is not None and not survivors:
                # It is gone already, unless somebody killed the warden.
                await anyio.to_thread.run_sync(partial(shutil.rmtree, self._link.scratch, ignore_errors=True))
        if survivors:
            raise EngineSurvived(f"still running after SIGKILL: pids {', '.join(map(str, sorted(survivors)))}")

    def log_tail(self, lines: int = 100) -> str:
        """The last lines that the engine wrote to stdout and stderr."""
        return tail(self.plan.log, lines)

    def device_log_tail(self, lines: int = 100) -> str:
        """The last lines of each log that the device's runtime wrote for this engine; empty without an NPU."""
        logs = sorted((self.plan.folder / DEVICE_LOG_FOLDER).rglob("*.log"))
        return "\n".join(text for log in logs if (text := tail(log, lines)))

    def _dead_worker(self) -> EngineDeath | None:
        for watched in self._watched:
            stat = procfs.read_stat(watched.pid)
            if stat is None or stat.started != watched.started:
                return EngineDeath(watched.role, watched.pid, None, None, time.monotonic_ns())
            if not stat.alive:
                returncode = os.waitstatus_to_exitcode(stat.wait_status)
                return EngineDeath.of(watched.role, watched.pid, returncode, time.monotonic_ns())
        return None

    async def _until(self, reached: Callable[[], bool], seconds: float) -> bool:
        """Look until `reached`; False when it was not within `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            self._link.read()
            if reached():
                return True
            if time.monotonic() >= deadline:
                return False
            await anyio.sleep(POLL_SECONDS)


def tail(path: Path, lines: int) -> str:
    """The last lines of a text file; empty when there is no such file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def _kill_remaining(token: str, known: list[int]) -> set[int]:
    """SIGKILL what the warden left, which is nothing when it did its work; returns what will not die.

    Args:
        known: pids that the warden could not kill; looked at again, since they may have no token.
    """
    started = {pid: stat.started for pid in known if (stat := procfs.read_stat(pid)) is not None}
    deadline = time.monotonic() + _KILL_SECONDS
    while True:
        remaining = procfs.token_holders(token)
        for pid, start in started.items():
            stat = procfs.read_stat(pid)
            if stat is not None and stat.alive and stat.started == start:
                remaining.add(pid)
        if not remaining or time.monotonic() >= deadline:
            return remaining
        for pid in remaining:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(POLL_SECONDS)
