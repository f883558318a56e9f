from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.coverage import Cell, Coverage, Relation, cell_of
from loadgen.sglang.pages import Pool
from loadgen.sglang.server import ServerConfiguration

from .steps import Step

SERVER = ServerConfiguration(Pool(128, 8), overlap=False)
STEPS = st.builds(
    Step,
    batch_size=st.integers(1, 9),
    need=st.integers(0, 9),
    free=st.integers(0, 9),
    trailing=st.integers(0, 9),
    prefill_batches=st.integers(0, 1),
    retractions=st.integers(0, 1),
    evicted_pages=st.integers(0, 2),
    cached=st.integers(0, 2),
)


def test_the_share_is_of_reachable_tight_cells_alone() -> None:
    coverage = Coverage(SERVER)
    coverage.observe(Step(need=1, free=1, batch_size=3, trailing=2))
    coverage.observe(Step(need=1, free=1, batch_size=3, trailing=2))
    coverage.observe(Step(need=1, free=2, batch_size=3, trailing=2))
    coverage.observe(Step(need=1, free=1, batch_size=1, trailing=0))
    assert coverage.covered == {Cell.parse("tight 1 2 2 running_rows decode")}
    assert coverage.share == pytest.approx(1 / len(coverage.reachable_tight))


def test_a_cell_hit_though_thought_unreachable_is_told_and_does_not_raise_the_share() -> None:
    coverage = Coverage(SERVER)
    cell = coverage.observe(Step(need=1, free=1, batch_size=1, trailing=0))
    assert coverage.unforeseen == {cell}
    assert coverage.hits.total() == 1
    assert coverage.share == 0


def test_a_pool_without_a_reachable_cell_is_not_covered() -> None:
    coverage = Coverage(ServerConfiguration(Pool(128, 2)))
    assert not coverage.reachable_tight
    assert coverage.share == 0


@given(st.lists(STEPS, max_size=50))
@settings(max_examples=100, deadline=None)
def test_every_step_at_the_edge_is_counted_once_and_what_is_missing_is_the_rest(steps: list[Step]) -> None:
    coverage = Coverage(SERVER)
    coverage.observe_all(steps)
    assert coverage.hits.total() == sum(cell_of(step) is not None for step in steps)
    assert len(coverage.covered) + len(coverage.missing) == len(coverage.reachable_tight)
    assert coverage.missing.isdisjoint(coverage.hits)
    assert all(cell.relation is Relation.TIGHT for cell in coverage.missing)


def test_loads_together_have_been_through_what_each_has_been_through_on_its_own_server() -> None:
    alone, paired = (Coverage(ServerConfiguration(Pool(128, 8), overlap=overlap)) for overlap in (False, True))
    lone = Step(need=1, free=1, batch_size=1, trailing=0)
    paired.observe(lone)
    assert Coverage.together([alone, paired]).covered == paired.covered != frozenset()

    alone.observe(lone)
    together = Coverage.together([alone, paired])
    assert together.reachable == alone.reachable | paired.reachable
    assert together.hits.total() == 2
    assert together.unforeseen == alone.unforeseen != set()
