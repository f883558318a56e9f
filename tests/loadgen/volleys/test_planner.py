"""Volleys: that the model hits, for nearly every cell that can exist, with a candidate that is found soon."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.coverage import Cell, Coverage, Filler, cell_of
from loadgen.sglang.pages import Pool
from loadgen.sglang.server import ServerConfiguration
from loadgen.sglang.shape import Shape
from loadgen.volleys.planner import JOINT, Planner
from loadgen.volleys.random_volleys import RANDOM_VOLLEYS
from loadgen.volleys.volley_forecast import VolleyForecast

from ..releases import OLD

CHUNK = 8192


def planner(pool: Pool, overlap: bool, seed: int = 1) -> tuple[Planner, frozenset[Cell]]:
    cells = Coverage(ServerConfiguration(pool, overlap)).reachable_tight
    return Planner(pool, overlap, cells, CHUNK, seed), cells


def plan_all(planner: Planner, cells: frozenset[Cell], candidates: int, share: float = 1.0) -> set[Cell]:
    """The cells hit, of so many candidates for each on average, or when as large a share of them is hit."""
    missing = set(cells)
    for _ in range(candidates * len(cells) // 4):
        if len(missing) <= (1 - share) * len(cells):
            break
        volley = planner.propose(missing, 4)
        if volley is not None:
            missing -= {cell for step in volley.foreseen if (cell := cell_of(step))}
    return set(cells) - missing


@pytest.mark.parametrize(
    ("page_size", "pages", "overlap", "fewest"),
    [
        (128, 32, True, 0.98),
        (128, 32, False, 0.98),
        (16, 32, True, 0.95),
        (64, 16, True, 0.95),
        (64, 16, False, 0.95),
        (128, 8, True, 0.9),
        (64, 48, True, 0.95),
    ],
)
def test_a_volley_is_found_for_nearly_every_cell_that_can_exist(
    page_size: int, pages: int, overlap: bool, fewest: float
) -> None:
    plan, cells = planner(Pool(page_size, pages), overlap)
    hit = plan_all(plan, cells, candidates=60, share=fewest)
    assert len(hit) >= fewest * len(cells), sorted(cells - hit)


def test_what_is_hit_on_the_model_was_not_thought_unreachable() -> None:
    for overlap in (True, False):
        plan, cells = planner(Pool(64, 16), overlap)
        plan_all(plan, cells, candidates=8)
        coverage = Coverage(ServerConfiguration(Pool(64, 16), overlap))
        for volley in plan.volley_by_cell.values():
            coverage.observe_all(volley.foreseen)
        assert not coverage.unforeseen


def test_the_same_seed_and_calls_give_the_same_volleys_and_another_seed_gives_others() -> None:
    volleys = []
    for seed in (3, 3, 4):
        plan, cells = planner(Pool(128, 16), True, seed)
        volleys.append([plan.propose(cells, 8) for _ in range(20)] + [plan.draw("staggered") for _ in range(3)])
    assert volleys[0] == volleys[1] != volleys[2]


def test_a_cell_that_was_put_back_comes_last_and_gets_another_volley() -> None:
    plan, cells = planner(Pool(128, 32), True)
    first = next(volley for _ in range(100) if (volley := plan.propose(cells, 4)))
    (cell,) = first.cells
    plan.put_back(cell)
    others = []
    while (volley := plan.propose(cells, 64)) is None or cell not in volley.cells:
        others.append(volley)
    assert len(others) >= len(cells) - 1
    assert volley.shapes != first.shapes
    assert plan.failed[cell] == 1


def test_a_volley_for_another_release_is_found_on_the_model_of_that_release() -> None:
    plan, cells = planner(Pool(128, 32), True)
    plan.rules = OLD
    hit = plan_all(plan, cells, candidates=20, share=0.75)
    assert len(hit) >= 0.75 * len(cells)
    for volley in plan.volley_by_cell.values():
        foreseen = VolleyForecast(plan.pool, True, CHUNK, OLD).steps(volley.shapes)
        assert list(foreseen) == list(volley.foreseen)


def test_nothing_is_aimed_at_when_nothing_is_wanted() -> None:
    plan, _ = planner(Pool(128, 32), True)
    assert plan.propose(set(), 4) is None
    assert plan.draw(JOINT) is None


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([16, 64, 128]), st.integers(8, 40), st.booleans(), st.integers(0, 1000))
def test_what_is_aimed_at_is_among_the_steps_that_are_foreseen(
    page_size: int, pages: int, overlap: bool, seed: int
) -> None:
    plan, cells = planner(Pool(page_size, pages), overlap, seed)
    for _ in range(10):
        volley = plan.propose(cells, 4)
        if volley is not None:
            (cell,) = volley.cells
            assert cell in {cell_of(step) for step in volley.foreseen}
            assert plan.volley_by_cell[cell] is volley


SHAPES = st.lists(st.builds(Shape, st.integers(1, 300), st.integers(1, 60)), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(SHAPES, st.booleans(), st.data())
def test_answers_that_are_cut_change_nothing_up_to_the_step_at_which_they_are_cut(
    shapes: list[Shape], overlap: bool, data: st.DataObject
) -> None:
    forecast = VolleyForecast(Pool(16, 24), overlap, CHUNK)
    steps = forecast.steps(shapes)
    if not steps:
        return
    last = data.draw(st.integers(1, len(steps)))
    cut = forecast.cut(shapes, last)
    again = forecast.steps(cut)
    assert len(cut) <= len(shapes)
    assert list(again[:last]) == list(steps[:last]) or any(step.retractions for step in steps[:last])
    if not any(step.retractions for step in steps[:last]):
        assert len(again) == last


def test_requests_that_sglang_would_refuse_make_no_steps() -> None:
    forecast = VolleyForecast(Pool(16, 8), True, CHUNK)
    assert forecast.steps([Shape(1, 2), Shape(128, 2)]) == ()
    assert forecast.cut([Shape(128, 2)], 1) == (Shape(128, 2),)


@pytest.mark.parametrize("overlap", [True, False])
def test_most_steps_of_staggered_volleys_are_critical(overlap: bool) -> None:
    plan, _ = planner(Pool(128, 32), overlap)
    steps = [step for _ in range(20) if (volley := plan.draw("staggered")) for step in volley.foreseen]
    assert sum(step.critical for step in steps) > 0.6 * len(steps)


@pytest.mark.parametrize("kind", sorted(RANDOM_VOLLEYS))
@pytest.mark.parametrize(("page_size", "pages"), [(16, 8), (128, 8), (128, 32), (16, 200), (64, 256)])
def test_each_kind_can_be_drawn_on_every_pool(kind: str, page_size: int, pages: int) -> None:
    plan, _ = planner(Pool(page_size, pages), True)
    assert any(plan.draw(kind) for _ in range(5))


def test_cells_of_a_server_without_prefix_cache_are_filled_by_running_rows() -> None:
    _, cells = planner(Pool(128, 32), True)
    assert {cell.filler for cell in cells} == {Filler.RUNNING_ROWS}
