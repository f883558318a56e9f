"""The median of a sample, and how sure it is. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """A median, and the bounds between which the true one lies with the given confidence."""

    median: float
    low: float
    high: float
    confidence: float


def median_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """The median with its confidence interval by ranks, which asks nothing of how the values are distributed.

    The number of values below the true median is binomial with p = 1/2. With so few values that no two of them are
    bounds of the confidence asked for, the least and the greatest are taken, and `confidence` says what they give.

    Raises:
        ValueError: there is no value.
    """
    if not values:
        raise ValueError("no values, so no median")
    ordered = sorted(values)
    count = len(ordered)
    rank, outside = 0, _binomial(count, 0)
    while 2 * (more := outside + _binomial(count, rank + 1)) <= 1 - confidence:
        rank, outside = rank + 1, more
    return Interval(statistics.median(ordered), ordered[rank], ordered[count - 1 - rank], max(0.0, 1 - 2 * outside))


def _binomial(count: int, successes: int) -> float:
    """P(X = successes) of `count` tosses of a coin. Whole numbers, since 0.5**count is soon too small for a float."""
    return math.comb(count, successes) / (1 << count)
