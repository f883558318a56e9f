"""One engine from its launch to its end: loaded, watched, and named when it is gone. Runs and `shrink` both use it.

How a crash travels:

1. `EngineDeath` (engine.process.death): how a process ended, when one did. Before an engine serves, it is all there is.
2. `Alarm` (execution.watch): the engine is gone; by which sign that was noticed, since when, with the death, if any.
3. `Crash` (engine.crash.crash): the value that everybody shows, in events, reports and metrics. `crash_of` makes it
   when the engine has said its last words and is stopped: `classify` says of which kind it is and why, from the logs
   and the flight recording (`Evidence`), and `describe_crash` adds step, times and the files that show it.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio

from loadgen.driver import Driver
from loadgen.http.connection import HttpError
from loadgen.requests.outcome import RequestOutcome
from loadgen.requests.prompts import PromptMaker
from service.concurrency import first_of
from service.engine.crash.crash import Crash
from service.engine.process.command import LaunchPlan
from service.engine.process.process import EngineProcess, EngineSurvived
from service.engine.process.readiness import Ready, wait_ready
from service.execution.aftermath import let_it_speak, survival
from service.execution.evidence import describe_crash
from service.execution.kernel_log import oom_kills
from service.execution.launching import client_of
from service.execution.preflight import Prepared
from service.execution.recording import Recording
from service.execution.watch import Alarm, Watch
from service.spec.spec import RunSpec

_FLUSH_SECONDS = 10.0

End = Callable[[], Awaitable[None]]
"""Returns when whatever goes on shall end early."""


class EngineSession:
    """An engine that serves.

    Attributes:
        ready: since when the load could begin.
        recording: what it does, counted from the last `begin`.
        clock: by which it and its load live.
        client: sends it requests.
        prompts: makes them, by the spec's seed.
    """

    def __init__(self, spec: RunSpec, prepared: Prepared, process: EngineProcess, ready: Ready) -> None:
        self._process = process
        self._server = prepared.server
        self._duration = spec.load.duration
        self._hang_seconds = spec.engine.hang_seconds
        self._kills_before = oom_kills()
        self.ready = ready
        self.clock = process.plan.clock
        self.client = client_of(process.plan, prepared)
        self.prompts = PromptMaker(spec.load.seed or 0, range(prepared.facts.vocabulary))
        self.recording = self.begin()

    def begin(self) -> Recording:
        """Count anew: what the engine has done so far is not the load's that follows."""
        self.recording = Recording(self._process.plan.flight, self._server)
        self._watch = self._watching(lambda: 1)
        return self.recording

    def _watching(self, open_requests: Callable[[], int]) -> Watch:
        return Watch(self._process, self.recording, open_requests, self._hang_seconds, self.clock)

    def ready_now(self) -> None:
        """Only from now on the load can begin."""
        self.ready = replace(self.ready, ready_ns=self.clock.now_ns())

    async def unless_gone(self, work: End, *ends: End) -> Alarm | None:
        """Do something with the engine. An alarm when it is gone before that is done or ended early."""
        return await first_of(work, self._watch.alarm, *ends)

    async def drive(self, driver: Driver, *ends: End, enough: Callable[[], bool] = lambda: False) -> Alarm | None:
        """Make load until that is over, enough or ended early; an alarm when the engine is gone before."""
        watch = self._watch = self._watching(lambda: driver.unserved)

        async def load() -> None:
            await driver.run(self._duration, enough)

        async def alarm() -> Alarm:
            noticed = await watch.alarm()
            driver.unanswered = RequestOutcome.LOST
            return noticed

        return await first_of(load, alarm, *ends)

    def look(self) -> Alarm | None:
        """Whether it is gone: it may have died in the very moment in which the load ended."""
        return self._watch.look()

    async def survival(self, *ends: End) -> Alarm | None:
        """After the load it must still complete a request; an alarm when it does not."""

        async def survives() -> Alarm | None:
            return await survival(self.client, self._watch, self._hang_seconds, self.clock)

        alarm = await first_of(survives, *ends)
        if alarm is None:
            self._kills_before = oom_kills()
        return alarm

    async def empty_prefix_cache(self) -> None:
        """Have it forget what has ended. SGLang does that only when it is idle; it is not waited for without end."""
        with anyio.move_on_after(_FLUSH_SECONDS), contextlib.suppress(HttpError):
            while not await self.client.flush_prefix_cache():  # noqa: ASYNC110
                await anyio.sleep(0.1)

    async def crash_of(self, alarm: Alarm) -> Crash:
        """What brought it down. It is given time for its last words, then stopped."""
        await let_it_speak(self._process, alarm)
        with contextlib.suppress(EngineSurvived):  # said again when the process is left
            await self._process.stop(0)
        kills = oom_kills() - self._kills_before
        return describe_crash(alarm, self._process, self.recording, self.ready.ready_ns, kills)


@asynccontextmanager
async def launched(
    spec: RunSpec, prepared: Prepared, plan: LaunchPlan, *ends: End
) -> AsyncIterator[EngineSession | None]:
    """Launch an engine, wait until it serves, and stop it at the end of the block. None when that was ended early.

    Raises:
        EngineNotStarted, EngineNotReady: it does not serve.
        EngineSurvived: at the end of the block, it cannot be stopped.
    """
    async with await EngineProcess.start(plan) as process:

        async def serving() -> Ready | None:
            return await wait_ready(plan, process)

        ready = await first_of(serving, *ends)
        yield None if ready is None else EngineSession(spec, prepared, process, ready)
