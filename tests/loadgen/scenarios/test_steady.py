"""`steady`: open-loop arrivals that a seed makes again, at the rate asked for, of lengths that the pool can serve."""

from __future__ import annotations

import itertools
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from loadgen.scenarios.base import Observation
from loadgen.scenarios.steady import Steady, SteadyOptions
from loadgen.sglang.pages import Pool
from loadgen.sglang.scheduler import Scheduler, check_servable
from loadgen.sglang.server import ServerConfiguration
from loadgen.sglang.shape import Shape

from ..modelled_load import ModelledLoad

POOL = Pool(128, 32)


def arrivals(options: SteadyOptions, seed: int, looks: list[float], pool: Pool = POOL) -> list[tuple[float, Shape]]:
    """Requests sent at each look at the clock, seconds."""
    scenario = Steady(ServerConfiguration(pool), options, seed)
    waves = [(at, scenario.next_wave(Observation(at, (), open_requests=0))) for at in looks]
    assert all(wave.streamed for _, wave in waves)
    return [(at, request.shape) for at, wave in waves for request in wave.requests]


def seconds(until: float, every: float = 0.01) -> list[float]:
    return [tick * every for tick in range(int(until / every) + 1)]


def test_a_seed_gives_the_same_requests_and_another_seed_gives_others() -> None:
    options = SteadyOptions(rate=20)
    assert arrivals(options, 7, seconds(10)) == arrivals(options, 7, seconds(10))
    assert arrivals(options, 7, seconds(10)) != arrivals(options, 8, seconds(10))


def test_requests_do_not_depend_on_when_the_clock_is_looked_at() -> None:
    options = SteadyOptions(rate=20)
    often = [shape for _, shape in arrivals(options, 3, seconds(10))]
    assert often == [shape for _, shape in arrivals(options, 3, [0.0, 4.5, 10.0])]


@pytest.mark.parametrize("rate", [0.5, 4.0, 50.0])
def test_arrivals_come_at_random_at_the_mean_rate(rate: float) -> None:
    looks = seconds(2000 / rate, every=0.1 / rate)
    times = [at for at, _ in arrivals(SteadyOptions(rate=rate), 1, looks)]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    # A Poisson process: the count within 3 standard deviations, and gaps that spread as much as their mean.
    assert len(times) == pytest.approx(2000, abs=3 * 2000**0.5)
    assert statistics.pstdev(gaps) == pytest.approx(1 / rate, rel=0.1)


@settings(max_examples=50)
@given(
    st.builds(Pool, st.integers(2, 256), st.integers(2, 600)),
    st.none() | st.integers(1, 9000),
    st.none() | st.integers(1, 9000),
    st.integers(0, 9),
)
def test_lengths_are_within_bounds_that_the_pool_can_serve(
    pool: Pool, prompt: int | None, answer: int | None, seed: int
) -> None:
    options = SteadyOptions(rate=100, max_prompt_tokens=prompt, max_answer_tokens=answer)
    if Steady.faults(pool, options):
        return
    longest = Steady.longest_request(pool, options)
    for _, shape in arrivals(options, seed, [0.5], pool):
        check_servable(shape, pool)
        assert shape.prompt_tokens + shape.max_new_tokens <= longest
        assert 1 <= shape.prompt_tokens <= (prompt or longest)
        assert 1 <= shape.max_new_tokens <= (answer or longest)


def test_the_default_lengths_leave_slack_in_the_pool() -> None:
    load = ModelledLoad(Steady(ServerConfiguration(POOL), SteadyOptions(), seed=1), Scheduler(POOL))
    steps = load.run(4000)
    assert not any(step.tight for step in steps)
    assert any(step.crossing for step in steps)


def test_lengths_that_the_pool_cannot_hold_are_refused() -> None:
    (misfit,) = Steady.faults(POOL, SteadyOptions(max_prompt_tokens=3900, max_answer_tokens=100))
    assert (misfit.field, misfit.value) == ("engine.pool_pages", 32)
    assert misfit.message == (
        "a prompt of 3900 and an answer of 100 tokens do not fit into 32 pages of 128, with the page that SGLang "
        "keeps back; use a larger pool, or shorter lengths"
    )


@pytest.mark.parametrize(
    "options", [{"rate": 0}, {"rate": 1001}, {"max_prompt_tokens": 0}, {"max_answer_tokens": 0}, {"rates": 3}]
)
def test_options_out_of_range_or_unknown_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        SteadyOptions.model_validate(options)


@pytest.mark.parametrize("page_size", [16, 100, 128, 200])
def test_a_prefill_is_whole_pages_on_any_page_size(page_size: int) -> None:
    """SGLang refuses to start otherwise. Its own sizes are powers of two, which a page size may not divide."""
    arguments = Steady.engine_needs(Pool(page_size, 64), SteadyOptions()).arguments
    sizes = [int(arguments[arguments.index("--chunked-prefill-size") + 1])] if arguments else [2048, 4096, 8192, 16384]
    assert all(size % page_size == 0 for size in sizes)
