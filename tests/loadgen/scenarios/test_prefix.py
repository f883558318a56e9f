"""`prefix` on the model of the scheduler: it knows what is cached, hits most cells, and gets over the unforeseen."""

from __future__ import annotations

import pytest

from loadgen.coverage import Coverage, Filler
from loadgen.scenarios.base import NoOptions
from loadgen.scenarios.prefix import Prefix
from loadgen.sglang.pages import Pool
from loadgen.sglang.rules import Rules
from loadgen.sglang.scheduler import Scheduler
from loadgen.sglang.server import ServerConfiguration
from loadgen.sglang.shape import Shape
from loadgen.sglang.steps import ModelStep

from ..modelled_load import ModelledLoad
from ..releases import NEW, OLD


def prefix_load(
    pool: Pool, *, overlap: bool = True, told_overlap: bool | None = None, rules: Rules = NEW
) -> ModelledLoad:
    arguments = Prefix.engine_needs(pool, NoOptions()).arguments
    assert "--disable-radix-cache" not in arguments
    server = Scheduler(
        pool,
        overlap=overlap,
        rules=rules,
        chunked_prefill_size=int(arguments[arguments.index("--chunked-prefill-size") + 1]),
        prefix_cache=True,
    )
    # Readiness and whoever was there before leave something in the cache.
    server.submit(Shape(3 * pool.page_size, pool.page_size))
    while not server.idle:
        server.iterate()
    told = overlap if told_overlap is None else told_overlap
    return ModelledLoad(Prefix(ServerConfiguration(pool, told, prefix_cache=True), NoOptions(), seed=1), server)


def covered(load: ModelledLoad, steps: list[ModelStep], overlap: bool = True) -> float:
    coverage = Coverage(ServerConfiguration(load.scheduler.pool.size, overlap, prefix_cache=True))
    coverage.observe_all(steps)
    assert not coverage.unforeseen
    cells = {cell for cell in coverage.reachable_tight if cell.filler is Filler.PREFIX_CACHE}
    return len(cells & coverage.hits.keys()) / len(cells)


@pytest.mark.parametrize(
    ("page_size", "pages", "overlap", "fewest"),
    [(128, 32, True, 0.35), (64, 16, False, 0.5), (16, 16, True, 0.5)],
)
def test_most_cells_that_the_prefix_cache_fills_are_hit_within_some_hundred_steps(
    page_size: int, pages: int, overlap: bool, fewest: float
) -> None:
    load = prefix_load(Pool(page_size, pages), overlap=overlap)
    steps = load.run(600)
    assert covered(load, steps, overlap) >= fewest
    assert sum(step.critical for step in steps) > 0.1 * len(steps)
    assert sum(step.evicted_pages for step in steps) > len(steps)
    assert load.scenario.restarts == []


def test_a_cache_that_is_not_as_foreseen_is_flooded_and_known_again() -> None:
    load = prefix_load(Pool(64, 16))
    load.run(200)
    # Somebody else's request, which takes part in a volley or two.
    load.scheduler.submit(Shape(300, 8))
    load.run(100)
    restarts = len(load.scenario.restarts)
    assert 1 <= restarts <= 6
    assert "foreseen" in load.scenario.restarts[0].reason
    load.run(200)
    assert len(load.scenario.restarts) == restarts


def test_another_release_is_noticed_and_followed() -> None:
    load = prefix_load(Pool(64, 16), rules=OLD)
    load.run(10)
    assert len(load.scenario.restarts) == 1
    steps = load.run(300)
    assert len(load.scenario.restarts) == 1
    assert covered(load, steps) > 0.1


def test_every_request_is_one_that_the_server_answers_in_full() -> None:
    pool = Pool(64, 24)
    load = prefix_load(pool)
    load.run(600)
    assert not any(request.aborted for request in load.scheduler.ended)
    assert all(request.shape.final_tokens <= Prefix.longest_request(pool, NoOptions()) for request in load.sent)


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
    assert [misfit.field for misfit in Prefix.faults(pool, NoOptions())] == fields


def test_without_a_prefix_cache_it_aims_at_what_such_a_server_can_reach() -> None:
    load = ModelledLoad(Prefix(ServerConfiguration(Pool(128, 32)), NoOptions(), seed=1), Scheduler(Pool(128, 32)))
    steps = load.run(200)
    assert sum(step.critical for step in steps) > 20


def test_where_no_cell_can_be_reached_it_still_makes_load() -> None:
    server = ServerConfiguration(Pool(128, 32), max_running_requests=1)
    scenario = Prefix(server, NoOptions(), seed=1)
    assert not scenario.coverage.reachable_tight
    assert len(ModelledLoad(scenario, Scheduler(Pool(128, 32))).run(50)) >= 50
