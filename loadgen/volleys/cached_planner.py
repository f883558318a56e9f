"""Which volley to send next to a server whose prefix cache fills its pool (pure)."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..coverage import After, Cell, Filler, cell_of
from ..requests.planned_request import PlannedRequest
from ..sglang.scheduler import Scheduler
from ..sglang.shape import Shape
from ..sglang.steps import ModelStep
from .cached_candidates import after_end, after_retraction, clearing, flooding, sharing, with_cached_pages_left
from .idle_candidates import TargetStep, idle_candidate
from .planner import numbers
from .volley_forecast import after_volley

_TRIES_AT_ONCE = 24
_MOST_PREPARATIONS = 2
_SHARING = 0.05


@dataclass(frozen=True, slots=True)
class CachedVolley:
    """Requests for an idle server, and what follows from them.

    Attributes:
        requests: in the order in which they are sent.
        foreseen: the decode steps that the model tells.
        cell: what it is aimed at; None: at nothing in particular.
    """

    requests: tuple[PlannedRequest, ...]
    foreseen: Sequence[ModelStep]
    cell: Cell | None = None


VolleyAndServer = tuple[CachedVolley, Scheduler]
"""A volley, and the server after it."""


def with_foresight(server: Scheduler, shapes: Iterable[Shape]) -> VolleyAndServer | None:
    """A volley of requests that share nothing; None when it cannot be served."""
    requests = tuple(map(PlannedRequest, shapes))
    after = after_volley(server, requests)
    return None if after is None else (CachedVolley(requests, after.steps), after)


class CachedPlanner:
    """Finds volleys on the model of the scheduler, a few candidates at a time.

    What a volley does depends on what the ones before it have left in the cache, so it is tried on the server's state.
    The cell that was hit least is aimed at first; one for which candidates were tried in vain counts as hit once more
    each time.

    Args:
        cells: what is to be hit; where there is none, nothing is aimed at.
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
        self._tries = self._preparations = 0
        self._cell: Cell | None = None

    def propose(self, server: Scheduler, hits: Mapping[Cell, int], candidates: int) -> VolleyAndServer | None:
        """Try at most so many candidates; a volley that hits, and the server after it.

        Args:
            server: as it will be when the volley arrives.
            hits: how often each cell was hit.
        """
        for _ in range(candidates if self._place else 0):
            if self._cell is None:
                self._cell = min(
                    self._place, key=lambda cell: (hits.get(cell, 0) + self.failed[cell], self._place[cell])
                )
                self._tries = self._preparations = 0
            cell = self._cell
            if (preparing := self._prepare(server, cell)) is not None:
                return preparing
            self._tries += 1
            requests = self._candidate(server, cell)
            after = after_volley(server, requests) if requests else None
            if requests and after is not None:
                cells = {cell_of(step) for step in after.steps}
                if cell in cells or any(each in self._place and not hits.get(each) for each in cells if each):
                    self._cell = None
                    return CachedVolley(tuple(requests), after.steps, cell), after
            if self._tries >= _TRIES_AT_ONCE:
                self.failed[cell] += 1
                self._cell = None
        return None

    def _prepare(self, server: Scheduler, cell: Cell) -> VolleyAndServer | None:
        """A volley after which the cache has pages, and two are free for each row, where the cell wants both."""
        rows, pool = _fewest_all_needing(cell), server.pool.size
        wants_cache = cell.filler is Filler.PREFIX_CACHE and cell.after in (After.PREFILL, After.DECODE)
        if not wants_cache or self._preparations == _MOST_PREPARATIONS:
            return None
        self._preparations += 1
        if server.pool.free_pages == pool.pages:
            return with_foresight(server, flooding(pool))
        if server.pool.free_pages < 2 * rows < pool.pages:
            return with_foresight(server, clearing(rows))
        return None

    def stir(self, server: Scheduler) -> VolleyAndServer | None:
        """A short volley that hits nothing in particular, and leaves the cache with less."""
        pages = server.pool.size.pages
        return with_foresight(server, clearing(self._random.randint(2, max(2, pages - 4))))

    def _candidate(self, server: Scheduler, cell: Cell) -> Sequence[PlannedRequest] | None:
        rng, pool = self._random, server.pool.size
        target = numbers(cell, pool, self._tries - 1, rng)
        if target is None or rng.random() < _SHARING:
            # Without pages in common they would not fit.
            rows = max(cell.batch_size, cell.need + cell.trailing)
            return sharing(pool, TargetStep(cell.need, rows + rng.randint(0, 8), cell.trailing, cell.after.value), rng)
        shapes = self._shapes(server, cell, target)
        return None if shapes is None else tuple(map(PlannedRequest, shapes))

    def _shapes(self, server: Scheduler, cell: Cell, target: TargetStep) -> Sequence[Shape] | None:
        rng, pool = self._random, server.pool.size
        if cell.after in (After.PREFILL, After.DECODE):
            at = 1 if cell.after is After.PREFILL else rng.choice((2, 2, 3))
            return with_cached_pages_left(
                pool, server.pool.free_pages, max(target.need, _fewest_all_needing(cell)), at, rng
            )
        if cell.after is After.EVICTION:
            if rng.random() < 0.3:
                return after_end(pool, self._overlap, target, rng)
            target = dataclasses.replace(target, after=rng.choice(("prefill", "prefill", "decode")))
        elif (draw := rng.random()) < 0.7:
            return after_end(pool, self._overlap, target, rng) if draw < 0.35 else after_retraction(pool, target, rng)
        return idle_candidate(pool, self._overlap, target, self._tries - 1, rng)


def _fewest_all_needing(cell: Cell) -> int:
    """Rows of which all need a page."""
    return max(cell.need, cell.batch_size)
