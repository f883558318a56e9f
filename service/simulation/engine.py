"""A simulated engine without its HTTP: requests go in, iterations are made and recorded, planted events happen."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field

from loadgen.sglang.limits import longest_accepted_prompt, longest_answer
from loadgen.sglang.scheduler import Request, Scheduler
from loadgen.sglang.scheduler.scheduler import CHUNKED_PREFILL_SIZE
from loadgen.sglang.server import ServerConfiguration
from loadgen.sglang.shape import Shape
from loadgen.sglang.steps import ModelStep
from service.engine.simulated import Event, PlantedEvent
from service.plugin.flight import AllocationOutcome, Totals
from service.plugin.measures import RECORDED
from service.plugin.recorder import FlightRecorder
from service.plugin.settings import Allocator
from service.simulation import answers
from service.simulation.launch import Launch

_WRONG_EVERY = 3
# Without pressure nothing is wrong: so many rows run together, at least, where a token is.
_WRONG_FROM_ROWS = 9


def _prefill_size(server: ServerConfiguration) -> int:
    """Tokens of one prefill; below 1 is whole prompts."""
    size = CHUNKED_PREFILL_SIZE if server.chunked_prefill_size is None else server.chunked_prefill_size
    return size if size > 0 else server.pool.tokens


class RequestRefused(ValueError):
    """SGLang answers such a request with HTTP 400."""


class SchedulerFailure(RuntimeError):
    """An exception comes out of the scheduler, which is the engine's end. `text` stands in its log."""

    def __init__(self, error: Exception, text: str) -> None:
        super().__init__(str(error))
        self.text = text


@dataclass(eq=False)
class ServedRequest(Request):
    """A request with its tokens.

    Attributes:
        prompt: its token ids.
        answer: the token ids of its answer so far.
        wanted: new tokens that it gets, 0 for a prompt that leaves no room for any.
        arrived: when it came, by the simulated clock, seconds.
        ended_at: when its last token came; None before.
    """

    prompt: list[int] = field(default_factory=list)
    vocabulary: int = 2
    wanted: int = 0
    arrived: float = 0.0
    ended_at: float | None = None
    answer: list[int] = field(default_factory=list)
    wrong: bool = False
    _state: int = 0

    def __post_init__(self) -> None:
        self._state = answers.begin(self.prompt)

    def write(self) -> None:
        """Have an answer with as many tokens as the scheduler has seen of it."""
        while len(self.answer) < min(self.output, self.wanted):
            token = answers.next_token(self._state, self.vocabulary)
            if self.wrong:
                token, self.wrong = (token + 1) % self.vocabulary, False
            self.answer.append(token)
            self._state = answers.read_token(self._state, token)

    def contents(self, pages: int, page_size: int) -> list[Hashable]:
        self.write()
        return [*answers.page_contents([*self.prompt, *self.answer][: pages * page_size], page_size)]


class SimulatedEngine:
    """Requests in, iterations out.

    Attributes:
        decode_steps: made since boot.
        stands_still: a planted hang has come.
        falls_silent: a planted silence has come.
    """

    def __init__(self, launch: Launch, recorder: FlightRecorder | None) -> None:
        simulation, allocator = launch.simulation, launch.settings.allocator
        server = launch.server
        self._launch = launch
        self._pool, self._rules = server.pool, server.rules
        self._simulation = simulation
        self._clamp = simulation.clamp if allocator is Allocator.INSTALLED else allocator is Allocator.PATCHED
        self._recorder = recorder
        self._scheduler = Scheduler(
            server.pool,
            overlap=server.overlap,
            rules=server.rules,
            chunked_prefill_size=_prefill_size(server),
            prefix_cache=server.prefix_cache,
        )
        self._events = sorted(simulation.events, key=lambda event: event.step)
        self._numbers = 0
        self._wrong_output = False
        self._to_starve = 0
        self.decode_steps = 0
        self.stands_still = False
        self.falls_silent = False
        self.signal: int | None = None

    def submit(self, prompt: list[int], max_new_tokens: int, arrived: float) -> ServedRequest:
        """A request arrives.

        Raises:
            RequestRefused: its prompt is longer than any that is taken in.
        """
        pool, length = self._pool, len(prompt)
        if length > longest_accepted_prompt(pool, self._rules):
            longest = longest_accepted_prompt(pool, self._rules)
            raise RequestRefused(
                f"Input length ({length} tokens) exceeds the maximum allowed length ({longest} tokens)."
            )
        wanted = max(0, min(max_new_tokens, longest_answer(length, pool, self._rules)))
        self._numbers += 1
        request = ServedRequest(
            Shape(length, max(1, wanted)),
            number=self._numbers,
            prompt=prompt,
            vocabulary=self._launch.vocabulary,
            wanted=wanted,
            arrived=arrived,
        )
        self._scheduler.accept(request)
        return request

    def abort(self, request: ServedRequest) -> None:
        """Its client has hung up."""
        self._scheduler.abort(request)

    def flush(self) -> bool:
        """Forget the prefix cache. Whether that was done: only an idle server does it."""
        if not self._scheduler.idle:
            return False
        self._scheduler.flush()
        return True

    @property
    def at_rest(self) -> bool:
        """Nothing can be done before another request arrives, or one is taken back."""
        return self._scheduler.idle or self._scheduler.stalled

    @property
    def running(self) -> int:
        return self._scheduler.running

    @property
    def waiting(self) -> int:
        return self._scheduler.waiting

    @property
    def free_pages(self) -> int:
        return self._scheduler.pool.free_pages

    def counters(self) -> dict[str, int]:
        """The plugin's series, by name."""
        totals = self._recorder.totals() if self._recorder is not None else Totals()
        return {f"lastpage_{measure.name}": getattr(totals, measure.name) for measure in RECORDED}

    def iterate(self) -> float:
        """Make one iteration of the scheduler's event loop. Returns how long it takes, simulated seconds.

        Raises:
            SchedulerFailure: the engine comes to its end by it.
        """
        scheduler = self._scheduler
        before = (scheduler.prefilled_tokens, scheduler.prefills, scheduler.tight_prefills)
        retracted, evicted = scheduler.retractions, self._evicted
        scheduler.iterate()
        tokens, batches, tight = (
            now - then
            for now, then in zip(
                (scheduler.prefilled_tokens, scheduler.prefills, scheduler.tight_prefills),
                before,
                strict=True,
            )
        )
        self._count(
            prefill_batches=batches,
            tight_prefill_batches=tight,
            retractions=scheduler.retractions - retracted,
            evicted_pages=self._evicted - evicted,
        )
        seconds = tokens * self._simulation.prefill_token_seconds
        for step in scheduler.steps:
            self._decode(step)
            seconds += self._simulation.step_seconds
        scheduler.steps.clear()
        return math.inf if self.stands_still else seconds

    def take_ended(self, now: float) -> list[ServedRequest]:
        """Requests that have ended since the last call, in order."""
        ended = [request for request in self._scheduler.ended if isinstance(request, ServedRequest)]
        self._scheduler.ended.clear()
        for request in ended:
            self._spoil(request)
            request.write()
            request.ended_at = now
        return ended

    @property
    def _evicted(self) -> int:
        return self._scheduler.cache.evicted_pages if self._scheduler.cache is not None else 0

    def _count(self, **counters: int) -> None:
        if self._recorder is not None:
            for name, amount in counters.items():
                if amount:
                    self._recorder.count(name, amount)

    def _decode(self, step: ModelStep) -> None:
        self.decode_steps += 1
        if self._recorder is not None:
            self._recorder.enter(step.batch_size, step.need, step.free, step.trailing, step.cached)
        if step.critical and not self._clamp:
            self._fail(
                IndexError(f"index {step.need} is out of bounds for dimension 0 with size {step.free}"), "alloc_decode"
            )
        while self._events and self._events[0].step <= self.decode_steps:
            self._happen(self._events.pop(0))
        if self._to_starve and self._scheduler.put_aside() is not None:
            self._to_starve -= 1
        if self._recorder is not None:
            self._recorder.leave(AllocationOutcome.RETURNED)

    def _happen(self, planted: PlantedEvent) -> None:
        if planted.event is Event.CRASH:
            self._fail(RuntimeError("an exception was planted here"), "run_batch")
        self.signal = planted.signal if planted.event is Event.SIGNAL else self.signal
        self.stands_still |= planted.event is Event.HANG
        self.falls_silent |= planted.event is Event.SILENCE
        self._wrong_output |= planted.event is Event.WRONG_OUTPUT
        self._to_starve += planted.event is Event.STARVATION

    def _fail(self, error: Exception, function: str) -> None:
        if self._recorder is not None and isinstance(error, IndexError):
            self._recorder.leave(AllocationOutcome.RAISED)
            self._recorder.raised(error)
        text = (
            "Scheduler hit an exception: Traceback (most recent call last):\n"
            '  File "simulated/scheduler.py", line 1, in run_scheduler_process\n'
            f'  File "simulated/scheduler.py", line 1, in {function}\n'
            f"{type(error).__name__}: {error}"
        )
        raise SchedulerFailure(error, text) from error

    def _spoil(self, request: ServedRequest) -> None:
        """With a planted fault, have a token of an answer wrong now and then, where many rows run together."""
        if self._wrong_output and self.running >= _WRONG_FROM_ROWS and request.number % _WRONG_EVERY == 0:
            request.wrong = True
