"""Histograms with fixed bounds: what a long run measured, in the same few numbers however long it was."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0)
"""Bounds for latencies."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many values fell where.

    Attributes:
        bounds: upper bounds, inclusive, in ascending order; above the last there is one more place.
        counts: values in each place, one more than there are bounds.
        total: sum of all values.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float

    def __sub__(self, earlier: Counts) -> Counts:
        """What came since an earlier state of the same histogram."""
        counts = tuple(now - then for now, then in zip(self.counts, earlier.counts, strict=True))
        return Counts(self.bounds, counts, self.total - earlier.total)

    def __add__(self, other: Counts) -> Counts:
        counts = tuple(one + two for one, two in zip(self.counts, other.counts, strict=True))
        return Counts(self.bounds, counts, self.total + other.total)


def nothing(bounds: Sequence[float]) -> Counts:
    """The counts of no values."""
    return Counts(tuple(bounds), (0,) * (len(bounds) + 1), 0.0)


class Histogram:
    """Counts values as they come."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def observe(self, value: float) -> None:
        self.observe_all((value,))

    def observe_all(self, values: Iterable[float]) -> None:
        bounds, counts = self._bounds, self._counts
        for value in values:
            counts[bisect.bisect_left(bounds, value)] += 1
            self._total += value

    def counts(self) -> Counts:
        return Counts(self._bounds, tuple(self._counts), self._total)
