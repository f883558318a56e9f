"""`ballast` against the model of SGLang's scheduler."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from loadgen.scenarios.ballast import Ballast, BallastOptions
from loadgen.sglang.pages import Pool
from loadgen.sglang.scheduler import Scheduler, check_servable
from loadgen.sglang.server import ServerConfiguration

from ..modelled_load import ModelledLoad

OPTIONS = st.builds(
    BallastOptions,
    share=st.floats(0.1, 0.95),
    ballast_tokens=st.integers(256, 32_000),
    boundaries=st.integers(1, 20),
)


def ballast_load(pool: Pool, options: BallastOptions, *, overlap: bool = True) -> ModelledLoad:
    arguments = Ballast.engine_needs(pool, options).arguments
    chunk = int(arguments[arguments.index("--chunked-prefill-size") + 1])
    scheduler = Scheduler(pool, overlap=overlap, chunked_prefill_size=chunk)
    return ModelledLoad(Ballast(ServerConfiguration(pool, overlap), options, seed=1), scheduler)


@pytest.mark.parametrize(("pages", "steps", "held"), [(32, 450, 0.15), (256, 900, 0.7), (2000, 900, 0.7)])
@pytest.mark.parametrize("overlap", [True, False])
def test_most_steps_are_critical_with_most_of_the_pool_held_by_long_requests(
    pages: int, steps: int, held: float, overlap: bool
) -> None:
    load = ballast_load(Pool(128, pages), BallastOptions(), overlap=overlap)
    made = load.run(steps)
    assert sum(step.critical for step in made) > 0.8 * len(made)
    assert load.scheduler.retractions == 0 and load.scenario.restarts == []
    long = [request for request in load.sent if len(request.crossings) > 1]
    assert sum(len(request.pages) for request in long) > held * pages


def test_when_the_long_requests_end_all_begins_anew() -> None:
    load = ballast_load(Pool(128, 256), BallastOptions(boundaries=2))
    load.run(1000)
    causes = {restart.cause for restart in load.scenario.restarts}
    assert causes == {"the long requests are about to end"} and len(load.scenario.restarts) >= 2


@settings(max_examples=30)
@given(st.builds(Pool, st.integers(32, 256), st.integers(20, 3000)), OPTIONS)
def test_what_is_not_refused_can_be_served_and_leaves_the_pages_that_it_promises(
    pool: Pool, options: BallastOptions
) -> None:
    assume(not Ballast.faults(pool, options))
    scenario = Ballast(ServerConfiguration(pool), options, seed=1)
    to_queue = scenario._lasting_requests()
    shapes = [queued.shape(pool.page_size) for queued in to_queue]
    for shape in shapes:
        check_servable(shape, pool)
        assert shape.prompt_tokens + shape.max_new_tokens <= Ballast.longest_request(pool, options)
    assert Ballast._shared(pool, options).pages == pool.pages - sum(queued.pages for queued in to_queue)


@pytest.mark.parametrize(
    ("pages", "options", "field"),
    [
        (256, {"boundaries": 103}, "load.options.boundaries"),
        (256, {"ballast_tokens": 1024, "boundaries": 8}, "load.options.boundaries"),
        (24, {}, "load.options.boundaries"),
        (135, {"share": 0.96}, "engine.pool_pages"),
    ],
)
def test_a_ballast_that_cannot_be_is_refused(pages: int, options: dict[str, float], field: str) -> None:
    (misfit,) = Ballast.faults(Pool(128, pages), BallastOptions.model_validate(options))
    assert misfit.field == field and misfit.message
