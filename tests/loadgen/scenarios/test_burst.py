"""`burst`: all at once, only when nothing is left of the burst before, and of lengths that the pool can serve."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from loadgen.requests.planned_request import PlannedRequest
from loadgen.requests.prompts import PromptMaker
from loadgen.scenarios.base import Observation
from loadgen.scenarios.burst import MIN_POOL_PAGES, Burst, BurstOptions
from loadgen.sglang.pages import Pool
from loadgen.sglang.scheduler import Scheduler, check_servable
from loadgen.sglang.server import ServerConfiguration

from ..modelled_load import ModelledLoad

POOL = Pool(128, 32)
IDLE, BUSY = Observation(0, (), 0), Observation(0, (), 1)
LENGTHS = st.none() | st.integers(1, 3000)


def bursts(seed: int, count: int, options: BurstOptions | None = None, pool: Pool = POOL) -> list[list[PlannedRequest]]:
    scenario = Burst(ServerConfiguration(pool, prefix_cache=True), options or BurstOptions(), seed)
    return [list(scenario.next_wave(IDLE).requests) for _ in range(count)]


def test_a_burst_waits_for_the_last_answer_of_the_one_before() -> None:
    scenario = Burst(ServerConfiguration(POOL, prefix_cache=True), BurstOptions(requests=7), 1)
    waves = [scenario.next_wave(seen) for seen in (IDLE, BUSY, BUSY, IDLE)]
    assert [len(wave.requests) for wave in waves] == [7, 0, 0, 7]
    assert waves[0] != waves[3]


def test_a_seed_gives_the_same_requests_and_another_seed_gives_others() -> None:
    assert bursts(5, 3) == bursts(5, 3)
    assert bursts(5, 1) != bursts(6, 1)


@given(st.builds(Pool, st.integers(2, 256), st.integers(2, 600)), LENGTHS, LENGTHS, LENGTHS, st.integers(0, 9))
def test_lengths_are_within_bounds_that_the_pool_can_serve(
    pool: Pool, shared: int | None, own: int | None, answer: int | None, seed: int
) -> None:
    options = BurstOptions(requests=20, shared_tokens=shared, own_tokens=own, answer_tokens=answer)
    if Burst.faults(pool, options):
        return
    (burst,) = bursts(seed, 1, options, pool)
    for request in burst:
        check_servable(request.shape, pool)
        assert request.shape.prompt_tokens + request.shape.max_new_tokens <= Burst.longest_request(pool, options)


@settings(max_examples=10)
@given(st.integers(0, 99))
def test_prompts_of_all_bursts_begin_with_the_same_tokens_and_go_on_with_their_own(seed: int) -> None:
    maker = PromptMaker(seed, range(256))
    requests = [request for burst in bursts(seed, 2) for request in burst]
    prompts = [maker.prompt(number, request) for number, request in enumerate(requests)]
    assert len({tuple(prompt[:128]) for prompt in prompts}) == 1
    assert len({tuple(prompt[128:160]) for prompt in prompts}) == len(prompts)


def test_a_burst_fills_the_pool_until_rows_are_retracted() -> None:
    """On the model, which knows neither the prefix cache nor a ratio other than 0."""
    load = ModelledLoad(Burst(ServerConfiguration(POOL), BurstOptions(), 1), Scheduler(POOL))
    load.run(3000)
    assert load.scheduler.retractions > 0 and not any(request.aborted for request in load.scheduler.ended)


@pytest.mark.parametrize("pages", [4, 5, 8, 32, 4096])
@pytest.mark.parametrize("page_size", [2, 16, 128])
def test_lengths_that_are_not_given_fit_every_pool(page_size: int, pages: int) -> None:
    assert Burst.faults(Pool(page_size, pages), BurstOptions()) == []


def test_lengths_and_pools_that_cannot_work_are_refused_by_field() -> None:
    (tiny,) = Burst.faults(Pool(128, MIN_POOL_PAGES - 1), BurstOptions())
    assert (tiny.field, tiny.value) == ("engine.pool_pages", 3)
    (long,) = Burst.faults(POOL, BurstOptions(shared_tokens=3000, own_tokens=900))
    assert (long.field, long.value) == ("engine.pool_pages", 32)
    assert "a prompt of 3000 + 900" in long.message
    with pytest.raises(ValidationError):
        BurstOptions.model_validate({"requests": 0})


@pytest.mark.parametrize("page_size", [16, 100, 128, 200])
def test_a_prefill_is_whole_pages_on_any_page_size(page_size: int) -> None:
    arguments = Burst.engine_needs(Pool(page_size, 64), BurstOptions()).arguments
    assert int(arguments[arguments.index("--chunked-prefill-size") + 1]) % page_size == 0
