"""Two servers of one release, one with the probe and one without, and rounds of the same decode batch on either."""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import anyio

from loadgen.client import GenerateClient, GenerateRequest
from loadgen.outcomes import Outcome
from service.engine.command import LaunchPlan, plan_launch
from service.engine.installation import Engine
from service.engine.overlay import write_overlay
from service.engine.ports import free_port
from service.engine.process import EngineProcess
from service.engine.readiness import wait_ready
from service.engine.tiny_model import VOCABULARY, write_tiny_model
from service.plugin.settings import Profile

PAGE_SIZE = 128
_PROMPT_TOKENS = 8
_SEED = 1
# Of the two servers only one works at a time, and the other must not spin while it waits.
_ARGUMENTS = ("--sleep-on-idle", "--disable-radix-cache")


class RoundFailed(RuntimeError):
    """A request of a round did not end as asked for, so the round took another number of steps."""


@dataclass(frozen=True)
class Batch:
    """A decode batch: `rows` requests, sent together, each for `steps` decode steps."""

    rows: int
    steps: int

    def requests(self) -> list[GenerateRequest]:
        prompts = [[(row + place) % VOCABULARY for place in range(_PROMPT_TOKENS)] for row in range(self.rows)]
        # The first new token comes out of the prefill.
        return [GenerateRequest(prompt, self.steps + 1) for prompt in prompts]

    def pages(self) -> int:
        """A pool in which it runs with as much again to spare."""
        return 2 * self.rows * (1 + (_PROMPT_TOKENS + self.steps) // PAGE_SIZE)


@dataclass(frozen=True)
class Cost:
    """What a decode step took in one round.

    Attributes:
        wall: seconds from sending the batch to its answer, a step.
        cpu: seconds of the scheduler's CPU time, a step.
    """

    wall: float
    cpu: float


class Server:
    """One of the two."""

    def __init__(self, scheduler_pid: int, client: GenerateClient) -> None:
        self._clock = _cpu_clock(scheduler_pid)
        self._client = client

    async def round(self, batch: Batch) -> Cost:
        """Send the batch, and wait for the answer.

        Raises:
            RoundFailed: see there.
        """
        requests = batch.requests()
        cpu, wall = time.clock_gettime(self._clock), time.monotonic()
        completions = await self._client.send_together(requests)
        cpu, wall = time.clock_gettime(self._clock) - cpu, time.monotonic() - wall
        for completion in completions:
            if completion.outcome is not Outcome.DONE:
                raise RoundFailed(f"a request ended as {completion.outcome.value}: {completion.detail}")
        return Cost(wall=wall / batch.steps, cpu=cpu / batch.steps)


@contextlib.asynccontextmanager
async def serving(engine: Engine, folder: Path, batch: Batch, *, probe: bool) -> AsyncIterator[Server]:
    """A server of the rehearsal; gone when the block is left, however it is left.

    Raises:
        EngineError: it does not come up.
    """
    plan = _plan(engine, folder, batch, probe=probe)
    async with await EngineProcess.start(plan) as process:
        ready = await wait_ready(plan, process)
        if ready.scheduler_pid is None:
            raise RoundFailed("the server's scheduler process was not found")
        client = GenerateClient(plan.url)
        try:
            yield Server(ready.scheduler_pid, client)
        finally:
            with anyio.CancelScope(shield=True):
                await client.aclose()


def _plan(engine: Engine, folder: Path, batch: Batch, *, probe: bool) -> LaunchPlan:
    folder.mkdir(parents=True)
    return plan_launch(
        python=engine.python,
        profile=Profile.REHEARSAL,
        model=write_tiny_model(folder / "models", Profile.REHEARSAL),
        tiny_model=True,
        folder=folder,
        overlay=write_overlay(folder / "overlay", Profile.REHEARSAL),
        port=free_port(),
        seed=_SEED,
        page_size=PAGE_SIZE,
        pool_pages=batch.pages(),
        probe=probe,
        user_arguments=_ARGUMENTS,
    )


def _cpu_clock(pid: int) -> int:
    """The clock of a process's CPU time, for time.clock_gettime. Nanoseconds, where /proc counts in hundredths."""
    clock = ctypes.c_int()
    error = ctypes.CDLL(None).clock_getcpuclockid(pid, ctypes.byref(clock))
    if error:
        raise OSError(error, f"CPU clock of process {pid}: {os.strerror(error)}")
    return clock.value
