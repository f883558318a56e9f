"""Drives a scenario against a server: asks for waves, sends them, and hands back what the probe saw."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio
import anyio.abc

from .client import GenerateClient, GenerateRequest, hung_up
from .histogram import SECONDS, Histogram
from .outcomes import FAILURES, Completion, Outcome
from .planned import PlannedRequest, PromptMaker
from .sample import Sample
from .scenarios.base import Observation, ObservedStep, Scenario, Wave
from .sent import SentWave

POLL_SECONDS = 0.01
_FAILURES_KEPT = 100
_OTHER_FAILURES = "others"


class StepFeed(Protocol):
    """Where the driver learns what the probe saw."""

    def take(self) -> Sequence[ObservedStep]:
        """The decode steps since the last call, oldest first."""


@dataclass
class Tally:
    """What became of the requests of a run. It stays small however long the run is.

    Attributes:
        seconds: from sending to the end, of requests that ended well.
        first_token_seconds: from sending to the first token, likewise.
        ttft: distribution of `first_token_seconds`.
        itl: distribution of the seconds from one token to the next, likewise.
        e2e: distribution of `seconds`.
        failures: what was said of requests that failed, and how often; what is said first is kept.
    """

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    seconds: Sample = field(default_factory=Sample)
    first_token_seconds: Sample = field(default_factory=Sample)
    new_tokens: int = 0
    ttft: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    itl: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    e2e: Histogram = field(default_factory=lambda: Histogram(SECONDS))

    def add(self, completion: Completion) -> None:
        self.outcomes[completion.outcome] += 1
        self.new_tokens += completion.new_tokens
        if completion.outcome in FAILURES:
            self._add_failure(f"{completion.outcome.value}: {completion.detail}")
        if completion.outcome is not Outcome.DONE:
            return
        # A failed request must not improve the latencies.
        self.seconds.add(completion.seconds)
        self.e2e.observe(completion.seconds)
        if completion.first_token_seconds is not None:
            self.first_token_seconds.add(completion.first_token_seconds)
            self.ttft.observe(completion.first_token_seconds)
        for gap in completion.token_gaps:
            self.itl.observe(gap)

    def _add_failure(self, text: str) -> None:
        known = text in self.failures or len(self.failures) < _FAILURES_KEPT
        self.failures[text if known else _OTHER_FAILURES] += 1


class Driver:
    """Runs one scenario for a time.

    Args:
        feed: what the probe saw.
        prompts: makes the requests' prompts.
        on_wave: called with each wave that is sent, for the record.

    Attributes:
        tally: what became of the requests so far.
        open_requests: requests sent and not yet answered.
        unanswered: what those count as that are still open when the load ends.
    """

    def __init__(
        self,
        scenario: Scenario[Any],
        client: GenerateClient,
        feed: StepFeed,
        prompts: PromptMaker,
        on_wave: Callable[[SentWave], None] = lambda _sent: None,
    ) -> None:
        self._scenario = scenario
        self._client = client
        self._feed = feed
        self._prompts = prompts
        self._on_wave = on_wave
        self.tally = Tally()
        self.open_requests = 0
        self._sent = 0
        self.unanswered = Outcome.CANCELLED

    async def run(self, duration: float, enough: Callable[[], bool] = lambda: False) -> None:
        """Make load for `duration` seconds, or until it is enough, then take back what is still open; or until the
        scenario has finished.

        Otherwise returns early only by cancellation. Requests that are open then count as cancelled, too.
        """
        began = time.monotonic()
        decode_steps = 0
        async with anyio.create_task_group() as senders:
            try:
                while (elapsed := time.monotonic() - began) < duration and not enough():
                    if self._scenario.finished and not self.open_requests:
                        return
                    steps = self._feed.take()
                    decode_steps += len(steps)
                    wave = self._scenario.next_wave(Observation(elapsed, steps, self.open_requests))
                    if wave.requests:
                        self._on_wave(SentWave(elapsed, decode_steps, self.open_requests, self._sent + 1, wave))
                        self._start(wave, senders)
                    await anyio.sleep(POLL_SECONDS)
            finally:
                senders.cancel_scope.cancel()

    def _start(self, wave: Wave, senders: anyio.abc.TaskGroup) -> None:
        self.open_requests += len(wave.requests)
        together = []
        for planned in wave.requests:
            request = self._request(planned)
            if wave.streamed or planned.hangs_up:
                senders.start_soon(self._send_streamed, request, planned)
            else:
                together.append(request)
        if together:
            senders.start_soon(self._send_together, together)

    def _request(self, planned: PlannedRequest) -> GenerateRequest:
        self._sent += 1
        number = self._sent if planned.number is None else planned.number
        return GenerateRequest(self._prompts.prompt(number, planned), planned.shape.max_new_tokens)

    async def _send_streamed(self, request: GenerateRequest, planned: PlannedRequest) -> None:
        began = time.monotonic()
        with self._accounting(1) as completions:
            patience = math.inf if planned.hang_up_seconds is None else planned.hang_up_seconds
            with anyio.move_on_after(patience) as waiting:
                completions.append(await self._client.send_streamed(request, planned.hang_up_tokens))
            if waiting.cancelled_caught:
                completions.append(hung_up(began))

    async def _send_together(self, requests: list[GenerateRequest]) -> None:
        with self._accounting(len(requests)) as completions:
            completions.extend(await self._client.send_together(requests))

    def _accounting(self, requests: int) -> _Accounting:
        return _Accounting(self, requests)


class _Accounting:
    """Counts every request that was sent exactly once, whatever happens to the task that waits for its answer."""

    def __init__(self, driver: Driver, requests: int) -> None:
        self._driver = driver
        self._requests = requests
        self._completions: list[Completion] = []
        self._began = time.monotonic()

    def __enter__(self) -> list[Completion]:
        return self._completions

    def __exit__(self, *_: object) -> None:
        self._driver.open_requests -= self._requests
        unanswered = self._requests - len(self._completions)
        outcome = self._driver.unanswered
        detail = "the engine was gone before it answered" if outcome is Outcome.LOST else ""
        without_answer = Completion(outcome, time.monotonic() - self._began, detail)
        for completion in [*self._completions, *[without_answer] * unanswered]:
            self._driver.tally.add(completion)
