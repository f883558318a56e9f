"""Claims about what a scenario says of a pool on which it cannot work."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from loadgen.scenarios.base import Misfit, PoolBounds
from loadgen.sglang.pages import Pool

LEAST = PoolBounds(page_size=16, page_too_small="too small to aim", pages=8, pages_at_fault="too few to take turns")
BETWEEN = dataclasses.replace(LEAST, pages_at_fault="the pool is filled anew", most_pages=1024)


def test_it_names_the_field_what_it_is_and_what_is_allowed() -> None:
    assert LEAST.misfits("load", Pool(15, 7)) == [
        Misfit("engine.page_size", 15, "too small to aim; load needs at least 16"),
        Misfit("engine.pool_pages", 7, "too few to take turns; load needs at least 8"),
    ]
    (large,) = BETWEEN.misfits("load", Pool(16, 1025))
    assert large == Misfit("engine.pool_pages", 1025, "the pool is filled anew; load needs from 8 to 1024")


@given(st.integers(2, 40), st.integers(2, 2000))
def test_a_pool_is_refused_exactly_when_it_is_out_of_bounds(page_size: int, pages: int) -> None:
    pool = Pool(page_size, pages)
    assert bool(LEAST.misfits("load", pool)) == (page_size < 16 or pages < 8)
    assert bool(BETWEEN.misfits("load", pool)) == (page_size < 16 or not 8 <= pages <= 1024)
