from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.interval import median_interval

numbers = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=200)


@given(numbers)
def test_bounds_are_values_around_the_median(values: list[float]) -> None:
    interval = median_interval(values)
    assert interval.low <= interval.median <= interval.high
    assert {interval.low, interval.high} <= set(values)
    assert interval.median == statistics.median(values)


@pytest.mark.parametrize(("count", "rank"), [(6, 0), (10, 1), (20, 5), (100, 39), (5000, 2430)])
def test_ranks_are_those_of_the_published_tables(count: int, rank: int) -> None:
    interval = median_interval(range(count))
    assert (interval.low, interval.high) == (rank, count - 1 - rank)
    assert interval.confidence >= 0.95


def test_too_few_values_say_what_confidence_they_give() -> None:
    assert median_interval([1.0, 2.0, 3.0, 4.0]).confidence == 0.875
    assert median_interval([1.0]).confidence == 0.0


def test_no_value_is_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        median_interval([])


def test_true_median_is_within_as_often_as_promised() -> None:
    draw = random.Random(1)
    samples = ([draw.expovariate(1.0) for _ in range(41)] for _ in range(1000))
    intervals = [median_interval(sample) for sample in samples]
    within = sum(interval.low <= 0.6931 <= interval.high for interval in intervals)
    assert within / len(intervals) > 0.93
