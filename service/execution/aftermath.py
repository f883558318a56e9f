"""After the load: whether the engine still serves, and the last words of one that does not."""

from __future__ import annotations

import anyio

from loadgen.clock import REAL, Clock
from loadgen.http.client import GenerateClient, GenerateRequest
from loadgen.requests.outcome import RequestOutcome
from service.concurrency import first_of
from service.engine.process.process import EngineProcess
from service.execution.watch import Alarm, Sign, Watch

_LAST_WORDS_SECONDS = 3.0
_FEWEST_LAST_WORDS_SECONDS = 0.5
_SURVIVAL_TOKENS = 8
_IDLE_SECONDS = 1.0


async def survival(client: GenerateClient, watch: Watch, hang_seconds: float, clock: Clock = REAL) -> Alarm | None:
    """The server must still complete a request; an alarm when it does not within `hang_seconds`."""
    began_ns = clock.now_ns()

    async def complete() -> None:
        # An idle scheduler checks its pool for leaks, and dies of one.
        # One that refuses lives, too.
        outcome = None
        while outcome not in (RequestOutcome.DONE, RequestOutcome.REFUSED):
            await clock.sleep(_IDLE_SECONDS)
            outcome = (await client.send_together([GenerateRequest([1, 2, 3], _SURVIVAL_TOKENS)]))[0].outcome

    async def alarm() -> Alarm | None:
        return await watch.alarm()

    async def give_up() -> Alarm | None:
        await clock.sleep(clock.patience(hang_seconds))
        return Alarm(Sign.HANG, clock.now_ns(), began_ns)

    return await first_of(complete, alarm, give_up)


async def let_it_speak(process: EngineProcess, alarm: Alarm) -> None:
    """An engine that fails writes its traceback within moments; one that is dead or hangs writes nothing more."""
    if alarm.sign is Sign.HANG:
        return
    seconds = process.plan.clock.machine_seconds(_LAST_WORDS_SECONDS)
    with anyio.move_on_after(max(seconds, _FEWEST_LAST_WORDS_SECONDS)):
        while process.exit is None and "hit an exception" not in process.log_tail(400):  # noqa: ASYNC110
            await anyio.sleep(0.1)
