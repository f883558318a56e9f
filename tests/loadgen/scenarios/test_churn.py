"""`churn` against the model of SGLang's scheduler: it never stops retracting, and never stops answering."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from loadgen.scenarios.base import Observation
from loadgen.scenarios.churn import MIN_PAGE_SIZE, MIN_POOL_PAGES, Churn, ChurnOptions, shapes
from loadgen.sglang.pages import Pool, crossings
from loadgen.sglang.rules import Rules
from loadgen.sglang.scheduler import Scheduler, check_servable
from loadgen.sglang.server import ServerConfiguration

from ..modelled_load import ModelledLoad
from ..releases import DIFFERENT, NAMES, NEW

POOL = Pool(128, 32)
OPTIONS = st.builds(
    ChurnOptions,
    open_requests=st.none() | st.integers(8, 300),
    long_share=st.floats(0, 1),
    boundaries=st.integers(2, 9),
    large_share=st.floats(0, 1),
)
SMALL_POOLS = st.builds(Pool, st.integers(MIN_PAGE_SIZE, 64), st.integers(MIN_POOL_PAGES, 60))
POOLS = st.builds(Pool, st.integers(MIN_PAGE_SIZE, 200), st.integers(MIN_POOL_PAGES, 300))


def churning(
    pool: Pool, options: ChurnOptions, *, overlap: bool = True, rules: Rules = NEW, seed: int = 1
) -> ModelledLoad:
    scheduler = Scheduler(pool, overlap=overlap, rules=rules)
    return ModelledLoad(Churn(ServerConfiguration(pool, overlap), options, seed), scheduler)


@given(POOLS, OPTIONS, st.integers(0, 99))
def test_every_request_can_be_served_whole_and_crosses_no_more_boundaries_than_allowed(
    pool: Pool, options: ChurnOptions, seed: int
) -> None:
    assume(not Churn.faults(pool, options))
    for shape in islice(shapes(pool, options, seed), 200):
        check_servable(shape, pool)
        assert len(crossings(shape, pool.page_size)) <= max(2, options.boundaries)
        assert shape.prompt_tokens + shape.max_new_tokens <= Churn.longest_request(pool, options)


def test_a_seed_gives_the_same_requests_whenever_they_are_asked_for() -> None:
    def sent(looks: list[int], seed: int) -> list[object]:
        scenario = Churn(ServerConfiguration(POOL), ChurnOptions(), seed)
        waves = [scenario.next_wave(Observation(0, (), open_requests)) for open_requests in looks]
        return [request for wave in waves for request in wave.requests]

    assert sent([0, 0, 0, 0], 3) == sent([124, 124, 0, 1, 200], 3)
    assert sent([0], 3) != sent([0], 4)


@settings(max_examples=12, deadline=None)
@given(SMALL_POOLS, OPTIONS, st.booleans(), st.integers(0, 99))
def test_it_makes_progress_whatever_is_retracted(pool: Pool, options: ChurnOptions, overlap: bool, seed: int) -> None:
    """No request is lost, cut or aborted, and in a page's decode steps some request always ends."""
    assume(not Churn.faults(pool, options))
    load = churning(pool, options, overlap=overlap, seed=seed)
    longest = Churn.longest_request(pool, options)
    for _ in range(3):
        ended = len(load.scheduler.ended)
        load.run(longest)
        assert len(load.scheduler.ended) > ended
    assert not any(request.aborted for request in load.scheduler.ended)
    assert all(request.output == request.shape.max_new_tokens for request in load.scheduler.ended)


@pytest.mark.parametrize("rules", DIFFERENT, ids=NAMES)
@pytest.mark.parametrize("overlap", [True, False])
def test_retraction_comes_again_and_again_and_most_steps_after_it_are_tight(overlap: bool, rules: Rules) -> None:
    load = churning(POOL, ChurnOptions(), overlap=overlap, rules=rules)
    load.run(1000)
    steps = load.run(4000)
    after_retraction = [step for step in steps if step.retractions]
    assert len(after_retraction) >= 0.03 * len(steps)
    assert sum(step.tight for step in after_retraction) >= 0.5 * len(after_retraction)
    assert sum(step.critical for step in steps) >= 0.03 * len(steps)
    assert {1, 2, 3} <= {step.need for step in after_retraction if step.tight}


def test_batches_of_few_rows_and_of_many_are_retracted_from_to_the_last_page() -> None:
    load = churning(POOL, ChurnOptions())
    sizes = {step.batch_size for step in load.run(12_000) if step.retractions and step.tight}
    assert min(sizes) < 4 and max(sizes) >= 16


def test_rows_of_several_pages_are_put_back_too() -> None:
    load = churning(POOL, ChurnOptions(long_share=0.3, boundaries=4))
    load.run(4000)
    assert load.scheduler.retractions > 100
    assert any(step.retractions == 1 and step.free > step.need for step in load.steps)


def test_pools_on_which_it_cannot_work_are_refused_by_field() -> None:
    few, small = Churn.faults(Pool(7, 6), ChurnOptions(boundaries=4))
    assert (few.field, few.value) == ("engine.page_size", 7)
    assert (small.field, small.value) == ("engine.pool_pages", 6)
    assert "needs at least 7" in small.message
    assert Churn.faults(Pool(8, 7), ChurnOptions(boundaries=4)) == []


@pytest.mark.parametrize(
    "options",
    [{"open_requests": 7}, {"long_share": 1.5}, {"boundaries": 1}, {"large_share": -0.1}, {"queue": 8}],
)
def test_options_out_of_range_or_unknown_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        ChurnOptions.model_validate(options)
