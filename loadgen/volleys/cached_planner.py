"""Which volley to send next to a server whose prefix cache fills its pool (pure)."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from ..coverage import After, Cell, cell_of
from ..pages import Shape
from ..scheduler_model import Scheduler
from .aimed import aimed
from .cached import after_end, after_retraction, beside_cache, clearing
from .forecast import after_volley
from .planner import Volley, numbers

KIND = "cached"

_TRIES_AT_ONCE = 24


class CachedPlanner:
    """Finds volleys on the model of the scheduler, a few candidates at a time.

    What a volley does depends on what the ones before it have left in the cache, so it is tried on the server's state.
    The cell that was hit least is aimed at first; one for which candidates were tried in vain counts as hit once more
    each time.

    Args:
        cells: what is to be hit.
        seed: the same seed and calls give the same volleys.

    Attributes:
        failed: how often candidates for a cell were tried in vain.
    """

    def __init__(self, overlap: bool, cells: Collection[Cell], seed: int) -> None:
        self.failed: Counter[Cell] = Counter()
        self._overlap = overlap
        self._random = random.Random(f"{seed} prefix")
        order = sorted(cells)
        self._random.shuffle(order)
        self._place = {cell: place for place, cell in enumerate(order)}
        self._tries = 0
        self._cell: Cell | None = None

    def aim(self, server: Scheduler, hits: Mapping[Cell, int], candidates: int) -> tuple[Volley, Scheduler] | None:
        """Try at most so many candidates; a volley that hits, and the server after it.

        Args:
            server: as it will be when the volley arrives.
            hits: how often each cell was hit.
        """
        for _ in range(candidates):
            if self._cell is None:
                self._cell = min(
                    self._place, key=lambda cell: (hits.get(cell, 0) + self.failed[cell], self._place[cell])
                )
                self._tries = 0
                if self._cell.after in (After.PREFILL, After.DECODE):
                    return self._make_free(server, 2 * self._cell.need)
            cell = self._cell
            self._tries += 1
            shapes = self._candidate(server, cell)
            after = after_volley(server, shapes) if shapes else None
            if shapes and after is not None:
                cells = {cell_of(step) for step in after.steps}
                if cell in cells or any(each in self._place and not hits.get(each) for each in cells if each):
                    self._cell = None
                    return Volley(KIND, tuple(shapes), after.steps, cell), after
            if self._tries >= _TRIES_AT_ONCE:
                self.failed[cell] += 1
                self._cell = None
        return None

    def _make_free(self, server: Scheduler, pages: int) -> tuple[Volley, Scheduler] | None:
        """What is to be hit beside a cache that has pages left starts with enough free ones."""
        most = max(pages, server.pool.size.pages - 4)
        return self._with(server, clearing(min(most, self._random.randint(pages, pages + 6))))

    def stir(self, server: Scheduler) -> tuple[Volley, Scheduler] | None:
        """A short volley that hits nothing in particular, and leaves the cache with less."""
        pages = server.pool.size.pages
        return self._with(server, clearing(self._random.randint(2, max(2, pages - 4))))

    def _with(self, server: Scheduler, shapes: Sequence[Shape]) -> tuple[Volley, Scheduler] | None:
        after = after_volley(server, shapes)
        return None if after is None else (Volley(KIND, tuple(shapes), after.steps), after)

    def _candidate(self, server: Scheduler, cell: Cell) -> Sequence[Shape] | None:
        rng, pool = self._random, server.pool.size
        aim = numbers(cell, pool, self._tries - 1, rng)
        if aim is None:
            return None
        if cell.after in (After.PREFILL, After.DECODE):
            at = 1 if cell.after is After.PREFILL else rng.choice((2, 2, 3))
            return beside_cache(pool, server.pool.free_pages, aim.need, at, rng)
        if cell.after is After.EVICTION:
            if rng.random() < 0.3:
                return after_end(pool, self._overlap, aim, rng)
            aim = dataclasses.replace(aim, after=rng.choice(("prefill", "prefill", "decode")))
        elif (draw := rng.random()) < 0.7:
            return after_end(pool, self._overlap, aim, rng) if draw < 0.35 else after_retraction(pool, aim, rng)
        return aimed(pool, self._overlap, aim, self._tries - 1, rng)
