"""A scenario that drives the model of the scheduler as the driver drives a server: what it sees is late."""

from __future__ import annotations

from collections import deque
from typing import Any, Literal

from loadgen.requests.wave import Wave
from loadgen.scenarios.base import Observation, Scenario
from loadgen.scenarios.tight.scenario import Tight, TightOptions
from loadgen.sglang.pages import Pool
from loadgen.sglang.rules import Rules
from loadgen.sglang.scheduler import Request, Scheduler
from loadgen.sglang.server import ServerConfiguration
from loadgen.sglang.steps import ModelStep

from .releases import NEW

_ITERATIONS_A_SECOND = 500
_CHECKED_EVERY = 50


class ModelledLoad:
    """A scenario and the scheduler that it drives.

    Args:
        poll: iterations of the scheduler from one look at it to the next.
        travel: iterations from the planning of a wave to its arrival.

    Attributes:
        sent: requests that arrived, in order.
        paused: the scenario is not asked for waves.
        foreign_pages: pages that a stranger holds.
    """

    def __init__(self, scenario: Scenario[Any], scheduler: Scheduler, *, poll: int = 4, travel: int = 2) -> None:
        self.scenario = scenario
        self.scheduler = scheduler
        self.sent: list[Request] = []
        self.paused = False
        self.foreign_pages: list[int] = []
        self._poll = poll
        self._travel = travel
        self._under_way: deque[tuple[int, Wave]] = deque()
        self._calls: list[list[Request]] = []
        self._seen = 0
        self._iterations = 0

    @property
    def steps(self) -> list[ModelStep]:
        return self.scheduler.steps

    def run(self, steps: int) -> list[ModelStep]:
        """Go on for as many decode steps, and return them. An idle server makes none, and ends this early."""
        first = len(self.steps)
        latest = self._iterations + 10 * steps + 1000
        while len(self.steps) < first + steps and self._iterations < latest:
            self.iterate()
        return self.steps[first:]

    def pause(self, iterations: int) -> None:
        """Let the server go on without the scenario."""
        self.paused = True
        for _ in range(iterations):
            self.iterate()
        self.paused = False

    def hold_foreign_pages(self, pages: int) -> None:
        self.foreign_pages += self.scheduler.pool.take(pages)

    def release_foreign_pages(self) -> None:
        self.scheduler.pool.release(self.foreign_pages)
        self.foreign_pages = []

    def iterate(self) -> None:
        """One iteration of the scheduler, and what arrives before it."""
        if self._iterations % self._poll == 0 and not self.paused:
            self._look()
        while self._under_way and self._under_way[0][0] <= self._iterations:
            self._arrive(self._under_way.popleft()[1])
        self.scheduler.iterate()
        self._iterations += 1
        if self._iterations % _CHECKED_EVERY == 0:
            self.scheduler.check(len(self.foreign_pages))

    def _arrive(self, wave: Wave) -> None:
        # Without a prefix cache it is of no account what prompts share.
        shares = self.scheduler.cache is not None
        arrived = [self.scheduler.submit(r.shape, *(r.shared if shares else ())) for r in wave.requests]
        self.sent += arrived
        # A wave that is not streamed is one call, which is answered when its last request is.
        self._calls += [[request] for request in arrived] if wave.streamed else [arrived]

    def _look(self) -> None:
        seen = self.steps[self._seen :]
        self._seen = len(self.steps)
        self._calls = [call for call in self._calls if not all(request.finished for request in call)]
        open_requests = sum(map(len, self._calls)) + sum(len(wave.requests) for _, wave in self._under_way)
        wave = self.scenario.next_wave(Observation(self._iterations / _ITERATIONS_A_SECOND, seen, open_requests))
        if wave.requests:
            self._under_way.append((self._iterations + self._travel, wave))


def tight_load(
    pool: Pool,
    *,
    overlap: bool = True,
    told_overlap: bool | None = None,
    rules: Rules = NEW,
    told_rules: Rules | None = None,
    queue: int = 64,
    needs: tuple[int, ...] | None = None,
    steps_per_need: int = 256,
    orders: tuple[Literal["oldest", "any"], ...] = ("oldest", "any"),
    poll: int = 4,
    travel: int = 2,
) -> ModelledLoad:
    """`tight` on a server that is launched as it needs.

    Args:
        told_overlap, told_rules: what the scenario is told of `overlap` and `rules`; the truth when None.
    """
    options = TightOptions(queue=queue, needs=needs, orders=orders, steps_per_need=steps_per_need)
    arguments = Tight.engine_needs(pool, options).arguments
    scheduler = Scheduler(
        pool,
        overlap=overlap,
        rules=rules,
        chunked_prefill_size=int(arguments[arguments.index("--chunked-prefill-size") + 1]),
    )
    told = overlap if told_overlap is None else told_overlap
    server = ServerConfiguration(pool, told, rules=told_rules or rules)
    return ModelledLoad(Tight(server, options, seed=1), scheduler, poll=poll, travel=travel)
