"""Ratios from measurements that were taken in turn, A B B A, so that a machine that speeds up or slows down favours
neither side. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

ORDER = "ABBA"


@dataclass(frozen=True)
class Interval:
    """A median, and the bounds between which the true one lies with the given confidence."""

    median: float
    low: float
    high: float
    confidence: float


def block_ratios(a: Sequence[float], b: Sequence[float]) -> list[float]:
    """b / a for each block of ORDER.

    Args:
        a: measurements in the order in which they were taken, two a block.
        b: the same for the other side.
    """
    if len(a) != len(b) or len(a) % 2:
        raise ValueError(f"{len(a)} and {len(b)} measurements do not make whole blocks of {ORDER}")
    return [(b[first] + b[first + 1]) / (a[first] + a[first + 1]) for first in range(0, len(a), 2)]


def median_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """The median with its confidence interval by ranks, which asks nothing of how the values are distributed.

    The number of values below the true median is binomial with p = 1/2. With so few values that no two of them are
    bounds of the confidence asked for, the least and the greatest are taken, and `confidence` says what they give.
    """
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    count = len(ordered)
    rank, outside = 0, 0.5**count
    while 2 * (more := outside + math.comb(count, rank + 1) * 0.5**count) <= 1 - confidence:
        rank, outside = rank + 1, more
    return Interval(statistics.median(ordered), ordered[rank], ordered[count - 1 - rank], max(0.0, 1 - 2 * outside))
