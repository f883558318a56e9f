"""`mixed` on the model of the scheduler: it hits nearly every cell, and goes on where the server is not as foreseen."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from loadgen.coverage import Coverage
from loadgen.scenarios.mixed import Mixed, MixedOptions
from loadgen.sglang.pages import Pool
from loadgen.sglang.rules import Rules
from loadgen.sglang.scheduler import Scheduler
from loadgen.sglang.server import ServerConfiguration
from loadgen.sglang.steps import ModelStep

from ..modelled_load import ModelledLoad
from ..releases import NEW, OLD


def mixed_load(
    pool: Pool,
    *,
    overlap: bool = True,
    told_overlap: bool | None = None,
    rules: Rules = NEW,
    seed: int = 1,
    options: MixedOptions | None = None,
) -> ModelledLoad:
    options = options or MixedOptions()
    arguments = Mixed.engine_needs(pool, options).arguments
    scheduler = Scheduler(
        pool,
        overlap=overlap,
        rules=rules,
        chunked_prefill_size=int(arguments[arguments.index("--chunked-prefill-size") + 1]),
    )
    told = overlap if told_overlap is None else told_overlap
    return ModelledLoad(Mixed(ServerConfiguration(pool, told), options, seed), scheduler)


def covered(load: ModelledLoad, steps: list[ModelStep], overlap: bool = True) -> float:
    coverage = Coverage(ServerConfiguration(load.scheduler.pool.size, overlap))
    coverage.observe_all(steps)
    return coverage.share


@pytest.mark.parametrize(
    ("page_size", "pages", "overlap", "steps"),
    [(128, 32, True, 1200), (128, 32, False, 1200), (16, 32, True, 1200), (64, 16, True, 1500), (128, 8, True, 1500)],
)
def test_nearly_every_cell_is_hit_within_some_hundred_steps(
    page_size: int, pages: int, overlap: bool, steps: int
) -> None:
    load = mixed_load(Pool(page_size, pages), overlap=overlap)
    assert covered(load, load.run(steps), overlap) >= 0.9


def test_when_no_cell_is_left_most_steps_of_the_staggered_share_are_critical() -> None:
    load = mixed_load(Pool(128, 16))
    load.run(1500)
    steps = load.run(3000)
    assert sum(step.critical for step in steps) > 0.4 * len(steps)


def test_each_kind_makes_the_share_of_the_steps_that_is_asked_for() -> None:
    weights = {"joint": 1, "staggered": 3, "retraction": 0, "long_answers": 0, "burst": 0}
    load = mixed_load(Pool(128, 8), options=MixedOptions.model_validate({"weights": weights}))
    load.run(1500)
    steps = load.run(3000)
    # Of joint volleys every step but few makes a page full, of staggered ones one a step; neither retracts.
    assert sum(step.retractions for step in steps) < 0.02 * len(steps)
    assert sum(step.critical for step in steps) / len(steps) > 0.5


def test_where_requests_end_as_in_an_older_release_it_plans_for_that() -> None:
    load = mixed_load(Pool(128, 32), rules=OLD)
    assert covered(load, load.run(2500)) >= 0.85


def test_it_goes_on_when_the_server_does_not_schedule_as_it_was_told() -> None:
    load = mixed_load(Pool(128, 16), overlap=False, told_overlap=True)
    steps = load.run(2000)
    assert len(steps) == 2000
    assert covered(load, steps) > 0.4


def test_it_finds_back_when_pages_that_something_else_held_are_free_again() -> None:
    load = mixed_load(Pool(128, 16))
    load.hold_foreign_pages(2)
    assert load.run(500)
    load.release_foreign_pages()
    assert covered(load, load.run(2000)) > 0.8


def test_the_same_seed_gives_the_same_requests_and_another_seed_others() -> None:
    sent = []
    for seed in (1, 1, 2):
        load = mixed_load(Pool(128, 16), seed=seed)
        load.run(300)
        sent.append([request.shape for request in load.sent])
    assert sent[0] == sent[1] != sent[2]


def test_every_request_is_one_that_the_server_answers_in_full() -> None:
    load = mixed_load(Pool(64, 24))
    load.run(1000)
    ended = load.scheduler.ended
    assert len(ended) > 500
    assert not any(request.aborted for request in ended)
    longest = Mixed.longest_request(Pool(64, 24), MixedOptions())
    assert all(request.shape.final_tokens <= longest for request in load.sent)


@pytest.mark.parametrize(
    ("pool", "fields"),
    [
        (Pool(128, 32), []),
        (Pool(16, 8), []),
        (Pool(8, 32), ["engine.page_size"]),
        (Pool(128, 7), ["engine.pool_pages"]),
        (Pool(8, 5000), ["engine.page_size", "engine.pool_pages"]),
    ],
)
def test_pools_on_which_it_cannot_work_are_told_by_field(pool: Pool, fields: list[str]) -> None:
    assert [misfit.field for misfit in Mixed.faults(pool, MixedOptions())] == fields


@pytest.mark.parametrize(
    "weights",
    [{"joint": -1}, {"joint": 0, "staggered": 0, "retraction": 0, "long_answers": 0, "burst": 0}, {"steady": 1}],
)
def test_weights_that_make_no_mix_are_refused(weights: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        MixedOptions.model_validate({"weights": weights})


@pytest.mark.parametrize("weights", [{}, {"staggered": 0, "long_answers": 0, "burst": 0}])
def test_where_no_cell_can_be_reached_it_still_makes_load(weights: dict[str, float]) -> None:
    scenario = Mixed(
        ServerConfiguration(Pool(128, 32), max_running_requests=1),
        MixedOptions.model_validate({"weights": weights}),
        seed=1,
    )
    assert not scenario.coverage.reachable_tight
    assert len(ModelledLoad(scenario, Scheduler(Pool(128, 32))).run(50)) >= 50
