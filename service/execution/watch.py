"""Notices that an engine under load is gone: dead, failing inside the allocator, hanging, or silent."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

import anyio
import httpx

from loadgen.clock import REAL, Clock
from service.concurrency import first_of
from service.engine.process.death import EngineDeath
from service.engine.process.process import EngineProcess
from service.execution.recording import Recording

_POLL_SECONDS = 0.02
_CALL_SECONDS = 0.5
# A look that comes so late tells that the machine stood still, and the engine with it, or only its watcher.
_PAUSE_NS = 500_000_000


class Sign(enum.Enum):
    """By what it was noticed."""

    DEATH = "one of its processes died"
    EXCEPTION = "an exception came out of the allocator"
    HANG = "no decode step was made for too long while requests were open"
    SILENCE = "nothing answered on its port, though its processes lived"


@dataclass(frozen=True)
class Alarm:
    """An engine is gone.

    Attributes:
        noticed_ns: by the recorder's clock, nanoseconds.
        since_ns: when it happened, where that is known; else when it was last seen at work.
    """

    sign: Sign
    noticed_ns: int
    since_ns: int
    death: EngineDeath | None = None


class Watch:
    """Watches one engine.

    Args:
        open_requests: tells how many requests wait for an answer.
        hang_seconds: how long no decode step, or no answer on the port, is borne.
        clock: the run's; the recorder's clock is the same.
    """

    def __init__(
        self,
        process: EngineProcess,
        recording: Recording | None,
        open_requests: Callable[[], int],
        hang_seconds: float,
        clock: Clock = REAL,
    ) -> None:
        self._clock = clock
        self._process = process
        self._recording = recording
        self._open_requests = open_requests
        self._hang_seconds = clock.patience(hang_seconds)
        self._hang_ns = int(self._hang_seconds * 1e9)
        # Both are moved on by the pauses of the machine.
        self._alive_ns = self._answered_ns = self._looked_ns = clock.now_ns()
        self._work_done: object = None

    async def alarm(self) -> Alarm:
        """Return when the engine is gone."""
        return await first_of(self._watch_processes, self._watch_port)

    async def _watch_processes(self) -> Alarm:
        while True:
            alarm = self.look()
            if alarm is not None:
                return alarm
            await anyio.sleep(_POLL_SECONDS)

    def look(self) -> Alarm | None:
        """Whether the engine is gone, as far as its processes and its recording tell."""
        now = self._clock.now_ns()
        if (pause := now - self._looked_ns) > self._clock.at(_PAUSE_NS):
            self._alive_ns += pause
            self._answered_ns += pause
        self._looked_ns = now
        if self._recording is not None and self._recording.raised:
            return Alarm(Sign.EXCEPTION, now, self._recording.totals().last_step_ns)
        death = self._process.death()
        if death is not None:
            return Alarm(Sign.DEATH, self._clock.now_ns(), self._clock.at(death.noticed_ns), death)
        if self._recording is None:
            return None
        totals = self._recording.totals()
        work_done = (totals.decode_steps, totals.prefill_batches, totals.retractions)
        if work_done != self._work_done or not self._open_requests():
            self._work_done = work_done
            self._alive_ns = now
        elif now - self._alive_ns > self._hang_ns:
            return Alarm(Sign.HANG, now, self._alive_ns)
        return None

    async def _watch_port(self) -> Alarm:
        """A refused connection tells at once. A slow answer tells nothing until it has been slow for long."""
        self._answered_ns = self._clock.now_ns()
        async with httpx.AsyncClient(base_url=self._process.plan.url, trust_env=False) as client:
            while True:
                began_ns = self._clock.now_ns()
                try:
                    await client.get("/model_info", timeout=self._clock.machine_seconds(self._hang_seconds))
                    self._answered_ns = self._clock.now_ns()
                except httpx.ConnectError:
                    # The process may be on its way out, in which case its death says more.
                    await anyio.sleep(_CALL_SECONDS)
                    return Alarm(Sign.SILENCE, self._clock.now_ns(), began_ns)
                except httpx.TransportError:
                    failed_ns = self._clock.now_ns()
                    # The other watcher may not have noticed yet that it was a pause.
                    await anyio.sleep(_CALL_SECONDS)
                    if failed_ns - self._answered_ns > self._hang_ns:
                        return Alarm(Sign.SILENCE, self._clock.now_ns(), self._answered_ns)
                await anyio.sleep(_CALL_SECONDS)
