"""Claims about samples: bounded, even, and never without the largest value."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.statistics.sample import Sample


@given(st.lists(st.floats(allow_nan=False, width=32), max_size=40), st.integers(1, 50))
def test_a_sample_is_all_values_while_they_are_few_and_some_of_them_after_that(values: list[float], size: int) -> None:
    sample = Sample(size)
    for value in values:
        sample.add(value)
    assert len(sample) == len(list(sample)) == min(len(values), size + 1)
    assert not values or max(sample) == max(values)
    if len(values) <= size + 1:
        assert sorted(sample) == sorted(values)
    else:
        assert set(sample) <= set(values)


def test_early_and_late_values_are_drawn_alike() -> None:
    sample = Sample(500)
    for value in range(20_000):
        sample.add(value)
    assert statistics.mean(sample) == pytest.approx(10_000, rel=0.1)
    assert 19_999 in sample and 20_000 not in sample
