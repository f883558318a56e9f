"""`reachable` excludes nothing that a scheduler can do, and counts nothing that it cannot."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.coverage import After, Cell, Coverage, Filler, Relation, reachable
from loadgen.coverage.cells import need_bucket, power_bucket
from loadgen.coverage.reachable import Situation, possible
from loadgen.sglang.pages import Pool
from loadgen.sglang.rules import Rules
from loadgen.sglang.scheduler import NotServable, Scheduler
from loadgen.sglang.server import ServerConfiguration
from loadgen.sglang.shape import Shape

from ..releases import DIFFERENT, NAMES

PAGE_SIZE = 8


def servers(most_pages: int) -> st.SearchStrategy[ServerConfiguration]:
    pools = st.builds(Pool, st.sampled_from([2, 3, PAGE_SIZE, 128]), st.integers(2, most_pages))
    return st.builds(ServerConfiguration, pools, st.booleans(), st.booleans(), st.none() | st.integers(1, most_pages))


def situations(most_rows: int) -> Iterator[Situation]:
    """Each need, batch size and number of trailing rows, one by one."""
    for batch_size in range(1, most_rows + 1):
        for need in range(1, batch_size + 1):
            for trailing in range(batch_size - need + 1):
                for relation in Relation:
                    for filler in Filler:
                        for after in After:
                            yield Situation(need, batch_size, trailing, relation, filler, after)


@given(servers(most_pages=16))
@settings(max_examples=15, deadline=None)
def test_the_cells_are_those_of_all_possible_situations_counted_one_by_one(server: ServerConfiguration) -> None:
    by_enumeration = {
        Cell(need_bucket(s.need), power_bucket(s.batch_size), power_bucket(s.trailing), *s[3:])
        for s in situations(server.pool.pages)
        if possible(server, s)
    }
    assert reachable(server) == by_enumeration


class Load:
    """Requests at random on the model of the scheduler: lengths around whole pages, arrivals in bursts."""

    def __init__(self, pool: Pool, chance: random.Random) -> None:
        self._pool = pool
        self._chance = chance
        self._longest_prompt = chance.choice([1, 1, 2, pool.pages - 1]) * pool.page_size
        self._longest_answer = chance.choice([1, 2, pool.page_size, 2 * pool.page_size, pool.tokens])
        self._rate, self._whole_pages = chance.random(), chance.random()

    def arrivals(self, scheduler: Scheduler) -> None:
        while scheduler.waiting < self._pool.pages and self._chance.random() < self._rate:
            prompt = self._chance.randint(1, self._longest_prompt)
            if self._chance.random() < self._whole_pages:
                prompt += -prompt % self._pool.page_size
            try:
                scheduler.submit(Shape(prompt, self._chance.randint(1, self._longest_answer)))
            except NotServable:
                continue


def observe_random_load(coverage: Coverage, server: ServerConfiguration, chance: random.Random) -> None:
    scheduler = Scheduler(
        server.pool,
        overlap=server.overlap,
        rules=server.rules,
        chunked_prefill_size=chance.choice([server.pool.page_size, 2 * server.pool.page_size, 8192]),
        prefix_cache=server.prefix_cache,
    )
    load = Load(server.pool, chance)
    for _ in range(chance.randint(20, 100)):
        load.arrivals(scheduler)
        scheduler.iterate()
    coverage.observe_all(scheduler.steps)


@given(st.integers(4, 40), st.booleans(), st.booleans(), st.sampled_from(DIFFERENT), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_the_model_of_the_scheduler_never_falls_in_a_cell_thought_unreachable(
    pages: int, overlap: bool, prefix_cache: bool, rules: Rules, chance: random.Random
) -> None:
    server = ServerConfiguration(Pool(PAGE_SIZE, pages), overlap=overlap, prefix_cache=prefix_cache, rules=rules)
    coverage = Coverage(server)
    observe_random_load(coverage, server, chance)
    assert not coverage.unforeseen


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("rules", DIFFERENT, ids=NAMES)
def test_the_model_of_the_scheduler_reaches_every_cell_of_a_small_pool(rules: Rules, overlap: bool) -> None:
    server = ServerConfiguration(Pool(PAGE_SIZE, 4), overlap=overlap, rules=rules)
    coverage, chance = Coverage(server), random.Random(1)
    for _ in range(4000):
        observe_random_load(coverage, server, chance)
        if not coverage.missing:
            break
    assert coverage.share == 1.0, sorted(coverage.missing)


def test_without_overlap_a_lone_row_never_takes_the_last_page() -> None:
    lone = Situation(1, 1, 0, Relation.TIGHT, Filler.RUNNING_ROWS, After.DECODE)
    assert not possible(ServerConfiguration(Pool(128, 32), overlap=False), lone)
    assert possible(ServerConfiguration(Pool(128, 32), overlap=True), lone)
    assert not possible(ServerConfiguration(Pool(128, 32), overlap=True), lone._replace(after=After.RETRACTION))


def test_right_after_a_prefill_the_row_that_takes_the_one_last_page_is_not_the_last() -> None:
    server = ServerConfiguration(Pool(128, 32), overlap=False)
    last = Situation(1, 8, 0, Relation.TIGHT, Filler.RUNNING_ROWS, After.PREFILL)
    assert not possible(server, last)
    assert possible(server, last._replace(trailing=1))
    assert possible(server, last._replace(need=2))


def test_while_the_prefix_cache_has_pages_all_rows_need_one_or_the_step_is_not_tight() -> None:
    server = ServerConfiguration(Pool(128, 32), prefix_cache=True)
    some = Situation(3, 4, 1, Relation.TIGHT, Filler.PREFIX_CACHE, After.DECODE)
    assert not possible(server, some)
    assert possible(server, some._replace(need=4, trailing=0))
    assert possible(server, some._replace(relation=Relation.ONE_OVER))
    assert possible(server, some._replace(after=After.EVICTION)), "the eviction may have emptied it"


def test_without_a_prefix_cache_nothing_is_evicted() -> None:
    cells = reachable(ServerConfiguration(Pool(128, 32), prefix_cache=False))
    assert {cell.filler for cell in cells} == {Filler.RUNNING_ROWS}
    assert After.EVICTION not in {cell.after for cell in cells}
    assert Relation.ONE_UNDER not in {cell.relation for cell in cells}


def test_rows_that_share_their_prompts_are_more_than_the_pool_has_pages_for() -> None:
    crowd = Situation(20, 20, 0, Relation.TIGHT, Filler.RUNNING_ROWS, After.PREFILL)
    assert possible(ServerConfiguration(Pool(128, 32), prefix_cache=True), crowd)
    assert not possible(ServerConfiguration(Pool(128, 32), prefix_cache=True), crowd._replace(after=After.DECODE))
    assert not possible(ServerConfiguration(Pool(128, 32), prefix_cache=False), crowd)


def test_a_server_that_runs_few_requests_at_a_time_has_no_cells_of_large_batches() -> None:
    cells = reachable(ServerConfiguration(Pool(128, 256), max_running_requests=8))
    assert max(cell.batch_size for cell in cells) == 8
    retracted = [cell.batch_size for cell in cells if cell.after is After.RETRACTION]
    assert max(retracted) == 4, "the retracted row was one of the 8"
