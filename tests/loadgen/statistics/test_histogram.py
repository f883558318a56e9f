"""Claims about histograms and about when a stream's tokens came."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.http.client import TokenTimes
from loadgen.statistics.histogram import Histogram, nothing

BOUNDS = (-1.0, 0.0, 2.5)


@given(st.lists(st.floats(-10, 10)))
def test_every_value_is_counted_in_the_first_place_that_reaches_it(values: list[float]) -> None:
    histogram = Histogram(BOUNDS)
    for value in values:
        histogram.observe(value)
    counts = histogram.counts()
    places = [
        sum(low < value <= high for value in values) for low, high in zip((-11, *BOUNDS), (*BOUNDS, 11), strict=True)
    ]
    assert list(counts.counts) == places
    assert counts.total == pytest.approx(sum(values))


def test_states_are_added_and_taken_apart() -> None:
    histogram = Histogram(BOUNDS)
    histogram.observe(0)
    earlier = histogram.counts()
    histogram.observe(9)
    now = histogram.counts()
    assert (now - earlier).counts == (0, 0, 0, 1)
    assert earlier + (now - earlier) == now == nothing(BOUNDS) + now


def test_tokens_that_come_together_share_the_time_since_those_before() -> None:
    times = TokenTimes(began=10.0)
    times.seen(0, 10.5)
    times.seen(1, 11.0)
    times.seen(3, 12.0)
    times.seen(3, 13.0)
    assert times.first_seconds == 1.0
    assert times.gaps == [0.5, 0.5]
