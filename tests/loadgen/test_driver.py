"""Claims about the driver: each request is counted once, whatever happens, and none is open in the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest

from loadgen.driver import Driver, StepFeed, Tally
from loadgen.http.client import GenerateClient
from loadgen.requests.outcome import Completion, RequestOutcome
from loadgen.requests.planned_request import PlannedRequest
from loadgen.requests.prompts import PromptMaker
from loadgen.requests.wave import SentWave, Wave
from loadgen.scenarios.base import NoOptions, Observation, Scenario
from loadgen.sglang.pages import Pool
from loadgen.sglang.server import ServerConfiguration
from loadgen.sglang.shape import Shape
from loadgen.sglang.steps import ObservedStep
from service.plugin.flight import AllocationOutcome, DecodeStep

from .fake_sglang import Answer, Exchange, answer_in_full, completion, fake_sglang

pytestmark = pytest.mark.anyio

SHAPES = (Shape(3, 4), Shape(5, 6), Shape(2, 3))


class Given(Scenario[NoOptions]):
    """Sends the waves that it was given, one each time it is asked, then nothing."""

    name = "given"
    summary = "the waves of a test"

    def __init__(self, *waves: Wave | Exception) -> None:
        super().__init__(ServerConfiguration(Pool(16, 8)), NoOptions(), seed=1)
        self.seen: list[Observation] = []
        self._waves = list(waves)

    @classmethod
    def longest_request(cls, pool: Pool, options: NoOptions) -> int:
        return 16

    def next_wave(self, seen: Observation) -> Wave:
        self.seen.append(seen)
        wave = self._waves.pop(0) if self._waves else Wave()
        if isinstance(wave, Exception):
            raise wave
        return wave


class Feed(StepFeed):
    """Hands back the steps that it was given."""

    def __init__(self, *steps: DecodeStep) -> None:
        self._steps = list(steps)

    def take(self) -> Sequence[ObservedStep]:
        steps, self._steps = self._steps, []
        return steps


async def never(_exchange: Exchange) -> None:
    await asyncio.sleep(60)


async def drive(
    answer: Answer, scenario: Scenario[Any], enough: Callable[[Driver], bool], *, feed: Feed | None = None, **more: Any
) -> Driver:
    """Make load until there is enough of it."""
    async with fake_sglang(answer) as server, anyio.create_task_group() as group:
        client = GenerateClient(server.url)
        driver = Driver(scenario, client, feed or Feed(), PromptMaker(7, range(256)), **more)
        group.start_soon(driver.run, 60)
        with anyio.fail_after(30):
            while not enough(driver):  # noqa: ASYNC110
                await anyio.sleep(0.01)
        group.cancel_scope.cancel()
    assert driver.open_requests == 0
    return driver


async def test_the_load_ends_before_its_time_when_it_is_enough() -> None:
    async with fake_sglang(never) as server:
        client = GenerateClient(server.url)
        driver = Driver(Given(Wave.of(SHAPES)), client, Feed(), PromptMaker(7, range(256)))
        with anyio.fail_after(30):
            await driver.run(3600, lambda: driver.open_requests == 3)
    assert driver.tally.outcomes == {RequestOutcome.CANCELLED: 3}


def answered(requests: int) -> Callable[[Driver], bool]:
    return lambda driver: driver.tally.outcomes.total() == requests


BOTH_WAYS = pytest.mark.parametrize("streamed", [False, True], ids=["together", "streamed"])


@BOTH_WAYS
async def test_answered_requests_are_done_with_their_tokens_and_times(streamed: bool) -> None:
    tally = (await drive(answer_in_full, Given(*[Wave.of(SHAPES, streamed=streamed)] * 2), answered(6))).tally
    assert tally.outcomes == {RequestOutcome.DONE: 6}
    assert (tally.new_tokens, len(tally.seconds)) == (26, 6)
    assert len(tally.first_token_seconds) == (6 if streamed else 0)
    assert not tally.failures


@BOTH_WAYS
async def test_requests_that_are_open_when_the_load_ends_are_taken_back(streamed: bool) -> None:
    async with fake_sglang(never) as server:
        client = GenerateClient(server.url)
        driver = Driver(Given(Wave.of(SHAPES, streamed=streamed)), client, Feed(), PromptMaker(7, range(256)))
        await driver.run(0.1)
    assert driver.tally.outcomes == {RequestOutcome.CANCELLED: 3}
    assert driver.open_requests == 0


@BOTH_WAYS
async def test_requests_sent_in_the_last_moment_are_counted(streamed: bool) -> None:
    """They may be taken back before the task that sends them has begun."""
    async with fake_sglang(never) as server, anyio.create_task_group() as group:
        client = GenerateClient(server.url)

        def cancel(_sent: SentWave) -> None:
            group.cancel_scope.cancel()

        driver = Driver(Given(Wave.of(SHAPES, streamed=streamed)), client, Feed(), PromptMaker(7, range(256)), cancel)
        group.start_soon(driver.run, 60)
    assert driver.tally.outcomes == {RequestOutcome.CANCELLED: 3}
    assert driver.open_requests == 0


@BOTH_WAYS
async def test_open_requests_of_an_engine_that_is_gone_are_lost(streamed: bool) -> None:
    async with fake_sglang(never) as server, anyio.create_task_group() as group:
        client = GenerateClient(server.url)
        driver = Driver(Given(Wave.of(SHAPES, streamed=streamed)), client, Feed(), PromptMaker(7, range(256)))
        group.start_soon(driver.run, 60)
        while driver.open_requests < 3:  # noqa: ASYNC110
            await anyio.sleep(0.01)
        driver.unanswered = RequestOutcome.LOST
        group.cancel_scope.cancel()
    assert driver.tally.outcomes == {RequestOutcome.LOST: 3}
    assert driver.tally.failures == {"lost: the engine was gone before it answered": 3}
    assert driver.open_requests == 0


@BOTH_WAYS
async def test_a_scenario_that_fails_leaves_no_request_uncounted(streamed: bool) -> None:
    scenario = Given(Wave.of(SHAPES, streamed=streamed), RuntimeError("planned itself into a corner"))
    async with fake_sglang(never) as server:
        client = GenerateClient(server.url)
        driver = Driver(scenario, client, Feed(), PromptMaker(7, range(256)))
        with pytest.raises(Exception, match="unhandled errors in a TaskGroup") as failed:
            await driver.run(60)
    assert "planned itself into a corner" in repr(failed.value)
    assert driver.tally.outcomes == {RequestOutcome.CANCELLED: 3}
    assert driver.open_requests == 0


async def test_broken_connections_are_counted_and_the_load_goes_on() -> None:
    async def break_off_first(exchange: Exchange) -> None:
        if exchange.body["sampling_params"][0]["max_new_tokens"] == 99:
            exchange.break_off()
        else:
            await answer_in_full(exchange)

    driver = await drive(break_off_first, Given(Wave.of((Shape(3, 99),) * 2), Wave.of(SHAPES)), answered(5))
    assert driver.tally.outcomes == {RequestOutcome.LOST: 2, RequestOutcome.DONE: 3}


async def test_the_scenario_sees_the_steps_and_how_many_requests_are_open() -> None:
    steps = [DecodeStep(n, 0, 2, 1, 1, 1, AllocationOutcome.RETURNED) for n in (1, 2)]
    scenario = Given(Wave.of(SHAPES))
    await drive(never, scenario, lambda _: len(scenario.seen) > 2, feed=Feed(*steps))
    assert (scenario.seen[0].steps, scenario.seen[0].open_requests) == (steps, 0)
    assert (scenario.seen[1].steps, scenario.seen[1].open_requests) == ([], 3)
    assert [seen.elapsed for seen in scenario.seen] == sorted(seen.elapsed for seen in scenario.seen)


async def test_each_wave_that_is_sent_is_told_for_the_record() -> None:
    told: list[SentWave] = []
    wave = Wave.of(SHAPES)
    await drive(answer_in_full, Given(Wave(), wave), answered(3), on_wave=told.append)
    (sent,) = told
    assert sent.wave is wave and sent.elapsed >= 0
    assert (sent.decode_steps, sent.open_requests, sent.first_number) == (0, 0, 1)


async def test_requests_have_the_lengths_of_the_shapes_in_their_order() -> None:
    bodies: list[Any] = []

    async def keep(exchange: Exchange) -> None:
        bodies.append(exchange.body)
        await answer_in_full(exchange)

    await drive(keep, Given(Wave.of(SHAPES)), answered(3))
    (body,) = bodies
    assert [len(prompt) for prompt in body["input_ids"]] == [shape.prompt_tokens for shape in SHAPES]
    assert [one["max_new_tokens"] for one in body["sampling_params"]] == [shape.max_new_tokens for shape in SHAPES]


def test_a_failed_request_does_not_improve_the_latencies() -> None:
    tally = Tally()
    tally.add(Completion(RequestOutcome.DONE, seconds=2.0, new_tokens=4, first_token_seconds=1.0, token_gaps=(0.5,)))
    tally.add(Completion(RequestOutcome.ABORTED, 0.001, "out of memory", new_tokens=1, first_token_seconds=0.001))
    tally.add(Completion(RequestOutcome.CANCELLED, 0.001))
    assert (list(tally.seconds), list(tally.first_token_seconds)) == ([2.0], [1.0])
    assert [sum(histogram.counts().counts) for histogram in (tally.e2e, tally.ttft, tally.itl)] == [1, 1, 1]
    assert tally.new_tokens == 5
    assert tally.failures == {"aborted: out of memory": 1}


def test_a_tally_stays_small_however_long_the_run_is() -> None:
    tally = Tally()
    for request in range(20_000):
        tally.add(Completion(RequestOutcome.DONE, seconds=request, first_token_seconds=request))
        tally.add(Completion(RequestOutcome.ERROR, 0.1, f"request {request} failed"))
    assert len(tally.seconds) < 10_000 and len(tally.first_token_seconds) < 10_000
    assert max(tally.seconds) == 19_999
    assert sum(tally.failures.values()) == tally.outcomes[RequestOutcome.ERROR] == 20_000
    assert len(tally.failures) == 101


async def test_what_the_server_says_of_failures_is_kept_with_how_often() -> None:
    async def abort(exchange: Exchange) -> None:
        await exchange.json(
            [completion(0, {"type": "abort", "message": "no room"}) for _ in exchange.body["input_ids"]]
        )

    driver = await drive(abort, Given(Wave.of(SHAPES)), answered(3))
    assert driver.tally.failures == {"aborted: no room": 3}


@pytest.mark.parametrize("hang_up", [{"hang_up_tokens": 2}, {"hang_up_seconds": 0.05}])
async def test_a_request_whose_client_hangs_up_is_no_failure_and_does_not_take_others_with_it(
    hang_up: dict[str, Any],
) -> None:
    async def stall_when_streamed(exchange: Exchange) -> None:
        if not exchange.body.get("stream"):
            await answer_in_full(exchange)
            return
        await exchange.begin_stream()
        await exchange.event(completion(2))
        await anyio.sleep_forever()

    hanging = PlannedRequest(Shape(3, 9), **hang_up)
    others = tuple(map(PlannedRequest, SHAPES))
    driver = await drive(stall_when_streamed, Given(Wave((hanging, *others))), answered(4))
    assert driver.tally.outcomes == {RequestOutcome.HUNG_UP: 1, RequestOutcome.DONE: 3}
    assert not driver.tally.failures
