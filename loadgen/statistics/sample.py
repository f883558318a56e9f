"""A sample of bounded size, for percentiles of runs of any length."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator

SIZE = 8192


class Sample(Collection[float]):
    """Values drawn evenly from all that were added: all of them while they are few, and always the largest."""

    def __init__(self, size: int = SIZE) -> None:
        self._size = size
        self._drawn: list[float] = []
        self._largest: float | None = None
        self._seen = 0
        # Which values are drawn has no part in what is sent: the run's seed need not make it again.
        self._random = random.Random(0)

    def add(self, value: float) -> None:
        if self._largest is None:
            self._largest = value
            return
        # The largest so far is kept aside; of the others each is drawn with the same chance (algorithm R).
        value, self._largest = min(value, self._largest), max(value, self._largest)
        self._seen += 1
        if len(self._drawn) < self._size:
            self._drawn.append(value)
        elif (place := self._random.randrange(self._seen)) < self._size:
            self._drawn[place] = value

    def __iter__(self) -> Iterator[float]:
        yield from self._drawn
        if self._largest is not None:
            yield self._largest

    def __len__(self) -> int:
        return len(self._drawn) + (self._largest is not None)

    def __contains__(self, value: object) -> bool:
        return any(value == one for one in self)
