"""Volleys on a pool that the prefix cache fills: that a flood forgets the past, and that cells are hit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from loadgen.coverage import Cell, Coverage, Filler, cell_of
from loadgen.requests.planned_request import PlannedRequest
from loadgen.sglang.pages import Pool
from loadgen.sglang.rules import Rules
from loadgen.sglang.scheduler import Scheduler
from loadgen.sglang.server import ServerConfiguration
from loadgen.sglang.shape import Shape
from loadgen.volleys.cached_candidates import clearing, flooding
from loadgen.volleys.cached_planner import CachedPlanner
from loadgen.volleys.volley_forecast import after_volley

from ..releases import DIFFERENT, NEW

PAST = st.lists(st.lists(st.builds(Shape, st.integers(1, 60), st.integers(2, 40)), min_size=1, max_size=8), max_size=4)


def server_of(pool: Pool, *, overlap: bool = True, rules: Rules = NEW) -> Scheduler:
    return Scheduler(pool, overlap=overlap, rules=rules, chunked_prefill_size=pool.tokens, prefix_cache=True)


def after_shapes(server: Scheduler, shapes: Sequence[Shape]) -> Scheduler | None:
    return after_volley(server, map(PlannedRequest, shapes))


def cached(server: Scheduler) -> list[int]:
    assert server.cache is not None
    return [len(node.pages) for node in sorted(server.cache.nodes, key=lambda node: node.accessed)]


@settings(max_examples=60, deadline=None)
@given(st.integers(8, 40), st.booleans(), st.sampled_from(DIFFERENT), PAST)
def test_after_a_flood_the_cache_holds_the_same_whatever_was_before(
    pages: int, overlap: bool, rules: Rules, past: list[list[Shape]]
) -> None:
    pool = Pool(16, pages)
    fresh = server_of(pool, overlap=overlap, rules=rules)
    used = fresh
    for volley in past:
        used = after_shapes(used, volley) or used
    floods = [after_shapes(server, flooding(pool)) for server in (fresh, used)]
    assert floods[0] is not None and floods[1] is not None
    assert cached(floods[0]) == cached(floods[1])
    assert not any(step.retractions for flood in floods if flood for step in flood.steps)


@pytest.mark.parametrize("pages", [2, 7, 20])
def test_a_clearing_leaves_more_than_so_many_pages_free(pages: int) -> None:
    pool = Pool(16, 32)
    server = after_shapes(server_of(pool), flooding(pool))
    assert server is not None
    cleared = after_shapes(server, clearing(pages))
    assert cleared is not None and cleared.cache is not None
    assert cleared.pool.free_pages > pages
    assert cleared.pool.free_pages + cleared.cache.evictable_pages == pool.pages


def cells_of(server: ServerConfiguration) -> frozenset[Cell]:
    return frozenset(c for c in Coverage(server).reachable_tight if c.filler is Filler.PREFIX_CACHE)


@pytest.mark.parametrize(("page_size", "pages", "overlap"), [(128, 32, True), (64, 16, False), (16, 16, True)])
def test_most_cells_are_hit_from_what_volleys_before_have_left(page_size: int, pages: int, overlap: bool) -> None:
    pool = Pool(page_size, pages)
    cells = cells_of(ServerConfiguration(pool, overlap, prefix_cache=True))
    planner = CachedPlanner(overlap, cells, seed=1)
    server = after_shapes(server_of(pool, overlap=overlap), flooding(pool))
    assert server is not None
    hits: Counter[Cell] = Counter()
    for _ in range(600):
        found = planner.propose(server, hits, candidates=6)
        if found is not None:
            volley, server = found
            server.check()
            hits.update(cell for step in volley.foreseen if (cell := cell_of(step)) is not None)
    assert len(cells & hits.keys()) >= 0.5 * len(cells), sorted(cells - hits.keys())


@given(st.integers(0, 3))
@settings(max_examples=4, deadline=None)
def test_the_same_seed_gives_the_same_volleys(seed: int) -> None:
    pool = Pool(32, 16)
    cells = cells_of(ServerConfiguration(pool, True, prefix_cache=True))
    assume(cells)
    told = []
    for _ in range(2):
        planner, server = CachedPlanner(True, cells, seed), server_of(pool)
        volleys = []
        for _ in range(60):
            found = planner.propose(server, {}, candidates=3)
            if found is not None:
                volleys.append(found[0].requests)
                server = found[1]
        told.append(volleys)
    assert told[0] == told[1] != []
