"""Drives a scenario against a server: asks for waves, sends them, and hands back what the probe saw."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio
import anyio.abc

from .checks.fairness import Call
from .checks.response_checks import ResponseChecks, Sending
from .clock import REAL, Clock
from .http.client import GenerateClient, hung_up
from .http.stream import TokenTimes
from .requests.outcome import FAILURES, Completion, RequestOutcome
from .requests.planned_request import PlannedRequest
from .requests.prompts import PromptMaker
from .requests.wave import SentWave, Wave
from .scenarios.base import Observation, Scenario
from .sglang.steps import ObservedStep
from .statistics.histogram import SECONDS, Histogram
from .statistics.sample import Sample

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

    outcomes: Counter[RequestOutcome] = field(default_factory=Counter)
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
        if completion.outcome is not RequestOutcome.DONE:
            return
        # A failed request must not improve the latencies.
        self.seconds.add(completion.seconds)
        self.e2e.observe(completion.seconds)
        if completion.first_token_seconds is not None:
            self.first_token_seconds.add(completion.first_token_seconds)
            self.ttft.observe(completion.first_token_seconds)
        self.itl.observe_all(completion.token_gaps)

    def _add_failure(self, text: str) -> None:
        known = text in self.failures or len(self.failures) < _FAILURES_KEPT
        self.failures[text if known else _OTHER_FAILURES] += 1


class Driver:
    """Runs one scenario for a time.

    Args:
        feed: what the probe saw.
        prompts: makes the requests' prompts.
        on_wave: called with each wave that is sent, for the record.
        response_checks: looks at every request; None: only at whether answers contradict themselves.
        clock: the run's.

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
        response_checks: ResponseChecks | None = None,
        clock: Clock = REAL,
    ) -> None:
        self._clock = clock
        self._scenario = scenario
        self._client = client
        self._feed = feed
        self._on_wave = on_wave
        self._checks = response_checks or ResponseChecks(prompts)
        self._scopes: dict[Call, anyio.CancelScope] = {}
        self.tally = Tally()
        self.open_requests = 0
        self._requests_sent = 0
        self.unanswered = RequestOutcome.CANCELLED

    @property
    def unserved(self) -> int:
        """Open requests, and those that were given up since the server last worked because it stood idle."""
        return self.open_requests + self._checks.given_up

    async def run(self, duration: float, enough: Callable[[], bool] = lambda: False) -> None:
        """Make load for `duration` seconds, or until it is enough, then take back what is still open; or until the
        scenario has finished.

        Otherwise returns early only by cancellation. Requests that are open then count as cancelled, too.
        """
        began = self._clock.now()
        decode_steps = 0
        async with anyio.create_task_group() as senders:
            try:
                while (elapsed := self._clock.now() - began) < duration and not enough():
                    if self._scenario.finished and not self.open_requests:
                        return
                    steps = self._feed.take()
                    decode_steps += len(steps)
                    self._look(steps, senders)
                    wave = self._scenario.next_wave(Observation(elapsed, steps, self.open_requests))
                    if wave.requests:
                        self._on_wave(
                            SentWave(elapsed, decode_steps, self.open_requests, self._requests_sent + 1, wave)
                        )
                        self._start(wave, senders)
                    await self._clock.sleep(POLL_SECONDS)
            finally:
                senders.cancel_scope.cancel()

    def _start(self, wave: Wave, senders: anyio.abc.TaskGroup) -> None:
        self.open_requests += len(wave.requests)
        together = []
        for planned_request in wave.requests:
            sending = self._sending(planned_request)
            if wave.streamed or planned_request.hangs_up:
                senders.start_soon(self._send_streamed, sending)
            else:
                together.append(sending)
        if together:
            senders.start_soon(self._send_together, together)

    def _sending(self, planned_request: PlannedRequest) -> Sending:
        self._requests_sent += 1
        return self._checks.sending(
            self._requests_sent if planned_request.number is None else planned_request.number, planned_request
        )

    def _look(self, steps: Sequence[ObservedStep], senders: anyio.abc.TaskGroup) -> None:
        for call in self._checks.look(steps):
            self._scopes[call].cancel()
        while self._checks.disputes:
            senders.start_soon(self._checks.settle, self._checks.disputes.pop(), self._client)

    async def _send_streamed(self, sending: Sending) -> None:
        planned_request, began = sending.planned_request, self._clock.now()
        tokens = TokenTimes(began)
        with self._accounting([sending], tokens) as completions:
            patience = math.inf if planned_request.hang_up_seconds is None else planned_request.hang_up_seconds
            with anyio.move_on_after(self._clock.machine_seconds(patience)) as waiting:
                completions.append(
                    await self._client.send_streamed(sending.request, planned_request.hang_up_tokens, tokens)
                )
            if waiting.cancelled_caught:
                completions.append(hung_up(self._clock.now() - began, tokens))

    async def _send_together(self, sendings: list[Sending]) -> None:
        with self._accounting(sendings) as completions:
            completions.extend(await self._client.send_together([sending.request for sending in sendings]))

    @contextmanager
    def _accounting(self, sendings: Sequence[Sending], tokens: TokenTimes | None = None) -> Iterator[list[Completion]]:
        """Counts every request that was sent exactly once, whatever happens to the task that waits for its answer."""
        began = self._clock.now()
        call = self._checks.call_started(sendings, tokens)
        completions: list[Completion] = []
        try:
            with anyio.CancelScope() as scope:
                self._scopes[call] = scope
                yield completions
        finally:
            del self._scopes[call]
            self.open_requests -= len(sendings)
            detail = "the engine was gone before it answered" if self.unanswered is RequestOutcome.LOST else ""
            without_answer = Completion(self.unanswered, self._clock.now() - began, detail)
            completions += [without_answer] * (len(sendings) - len(completions))
            self._checks.call_ended(call, sendings, completions)
            for completion in completions:
                self.tally.add(completion)
