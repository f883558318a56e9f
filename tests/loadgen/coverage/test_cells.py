from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.coverage import After, Cell, Filler, Relation, cell_of
from loadgen.coverage.cells import need_bucket, need_bucket_end, power_bucket, power_bucket_end

from .steps import Step


def test_needs_fall_into_buckets_1_2_3to4_5to8_and_so_on() -> None:
    assert [need_bucket(need) for need in range(1, 18)] == [1, 2, 3, 3, 5, 5, 5, 5, *[9] * 8, 17]


def test_counts_fall_into_buckets_by_powers_of_two() -> None:
    assert [power_bucket(count) for count in range(17)] == [0, 1, 2, 2, 4, 4, 4, 4, *[8] * 8, 16]


@given(st.integers(1, 10**7))
def test_a_bucket_holds_just_what_lies_between_its_ends(count: int) -> None:
    assert need_bucket(count) <= count <= need_bucket_end(need_bucket(count))
    assert power_bucket(count) <= count <= power_bucket_end(power_bucket(count))
    assert need_bucket(need_bucket_end(need_bucket(count)) + 1) > need_bucket(count)
    assert power_bucket(power_bucket_end(power_bucket(count)) + 1) > power_bucket(count)


def test_a_step_that_needs_no_page_or_leaves_more_than_one_falls_in_no_cell() -> None:
    assert cell_of(Step(need=0, free=0)) is None
    assert cell_of(Step(need=1, free=3)) is None
    assert cell_of(Step(need=2, free=1)) is None


def test_a_step_under_the_edge_is_one_that_an_eviction_just_saved() -> None:
    cell = cell_of(Step(need=2, free=5, evicted_pages=4))
    assert cell is not None and cell.relation is Relation.ONE_UNDER
    assert cell_of(Step(need=2, free=5, evicted_pages=3)) is None
    assert cell_of(Step(need=1, free=0, evicted_pages=0)) is None


@pytest.mark.parametrize(("free", "relation"), [(2, Relation.TIGHT), (3, Relation.ONE_OVER)])
def test_what_is_tight_or_one_over_is_so_whatever_was_evicted(free: int, relation: Relation) -> None:
    cell = cell_of(Step(need=2, free=free, evicted_pages=free - 1))
    assert cell is not None and cell.relation is relation


@pytest.mark.parametrize(
    ("step", "after"),
    [
        (Step(), After.DECODE),
        (Step(prefill_batches=2), After.PREFILL),
        (Step(prefill_batches=1, evicted_pages=1), After.EVICTION),
        (Step(prefill_batches=1, evicted_pages=1, retractions=1), After.RETRACTION),
    ],
)
def test_of_several_things_that_came_between_the_gravest_counts(step: Step, after: After) -> None:
    cell = cell_of(step)
    assert cell is not None and cell.after is after


@pytest.mark.parametrize(
    ("step", "filler"),
    [
        (Step(), Filler.RUNNING_ROWS),
        (Step(cached=1), Filler.PREFIX_CACHE),
        (Step(evicted_pages=1), Filler.PREFIX_CACHE),
    ],
)
def test_the_prefix_cache_fills_the_pool_when_it_could_give_or_gave_pages(step: Step, filler: Filler) -> None:
    cell = cell_of(step)
    assert cell is not None and cell.filler is filler


def test_a_cell_names_the_buckets_of_its_step() -> None:
    step = Step(batch_size=30, need=3, free=3, trailing=6, prefill_batches=1)
    assert cell_of(step) == Cell(3, 16, 4, Relation.TIGHT, Filler.RUNNING_ROWS, After.PREFILL)


def test_a_cell_is_read_back_from_its_text() -> None:
    cell = Cell(3, 16, 4, Relation.TIGHT, Filler.RUNNING_ROWS, After.PREFILL)
    assert str(cell) == "tight 3 16 4 running_rows prefill"
    assert Cell.parse(str(cell)) == cell


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tight 1 8",
        "tight 4 8 0 running_rows decode",
        "loose 1 8 0 running_rows decode",
        "tight 0 8 0 running_rows decode",
    ],
)
def test_what_is_no_cell_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no cell"):
        Cell.parse(text)


@pytest.mark.parametrize("counts", ["1 0 0", "2 1 0", "1 1 1", "3 4 8", "0 1 0", "1 -4 0", "1 3 0", "1 8 3"])
def test_counts_that_no_batch_can_have_are_no_cell(counts: str) -> None:
    with pytest.raises(ValueError, match="is no cell"):
        Cell.parse(f"tight {counts} running_rows decode")
