"""Claims about values as people write them: shares and durations."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.spec.duration import format_duration, parse_duration
from service.spec.fraction import parse_fraction


@pytest.mark.parametrize(
    ("written", "share"),
    [(0.9, 0.9), (1, 1.0), ("0.9", 0.9), ("90%", 0.9), (" 100% ", 1.0), ("0.5%", 0.005), (1e-9, 1e-9)],
)
def test_a_share_is_a_number_or_a_percentage(written: Any, share: float) -> None:
    assert parse_fraction(written) == pytest.approx(share, rel=1e-12)


@pytest.mark.parametrize(
    "written",
    [0, -0.1, 1.0000001, 2, "0%", "100.1%", "90%%", "%", "", "many", "9" * 101, True, None, [0.5], math.nan, "inf"],
)
def test_what_is_no_share_is_refused_with_what_is_allowed(written: Any) -> None:
    with pytest.raises(ValueError, match="not a share; allowed: a number above 0 and up to 1, or a percentage"):
        parse_fraction(written)


def test_a_share_of_the_longest_text_is_read() -> None:
    assert parse_fraction("0." + "5" * 98) == pytest.approx(5 / 9)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("1ms", 0.001), ("2s", 2), ("3m", 180), ("4min", 240), ("5h", 18_000), ("6d", 518_400), ("1H 30M", 5400)],
)
def test_each_unit_is_as_long_as_it_is(written: Any, seconds: float) -> None:
    assert parse_duration(written) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize("written", ["1x", "s", "1m x", "--1s", True, False, None, b"1s", "1" + " " * 100 + "s"])
def test_what_is_no_duration_is_refused_with_what_is_allowed(written: Any) -> None:
    with pytest.raises(ValueError, match="allowed: a number of seconds, or a text such as 90s, 5m or 1h30m"):
        parse_duration(written)


def test_a_duration_of_the_longest_text_is_read() -> None:
    assert parse_duration("0" * 97 + "12s") == 12


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(0, "0s"), (0.4, "0s"), (0.6, "1s"), (59, "59s"), (60, "1m"), (90, "1m30s"), (3600, "1h"), (90_061, "1d1h1m1s")],
)
def test_a_duration_is_told_in_the_largest_units_that_go_into_it(seconds: float, written: str) -> None:
    assert format_duration(seconds) == written


@given(st.integers(0, 10**7), st.integers(0, 10**7))
def test_longer_durations_are_told_otherwise(one: int, other: int) -> None:
    assert (format_duration(one) == format_duration(other)) is (one == other)
