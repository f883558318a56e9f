"""Many aims in one volley: rows that go on fill most of a large pool, and candidates take turns in the rest (pure).

To fill a large pool takes far longer than the few steps that a volley is sent for. So one volley fills it once, with
rows that neither cross nor end, and leaves a *window*. Behind them wait candidates for many cells
(`window_candidate`): each has the window for itself when the rows of the one before have ended. What holds of one
candidate alone need not hold of them together. So each is added only if the model tells that all cells are still hit.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Collection

from ..coverage import After, Cell, cell_of
from ..coverage.cells import power_bucket_end
from ..sglang.pages import Pool
from ..sglang.shape import Shape
from .idle_candidates import TargetStep, row_of, spread
from .planner import JOINT, Planner, Volley
from .window_candidates import window_candidate

_WINDOWS = (32, 64, 128, 256)
_TRIES = 8
_MOST_FAILED = 2
_MOST_NOT_TOGETHER = 3
_MOST_TAKEN_BACK = 8
_LAST_STEPS = 16


class Chains:
    """Builds chains, a few candidates at a time.

    Args:
        planner: has the model of the scheduler, and knows what was sent in vain.
        cells: what is to be hit; their order is drawn.
        seed: the same seed and calls give the same volleys.
    """

    def __init__(self, planner: Planner, cells: Collection[Cell], seed: int) -> None:
        self._planner = planner
        self._random = random.Random(f"{seed} chains")
        self._order = sorted(cell for cell in cells if _can_be_hit_in_window(cell))
        self._random.shuffle(self._order)
        self._hopeless: set[Cell] = set()
        self._chain: _Chain | None = None

    def propose(self, wanted: Collection[Cell], candidates: int) -> Volley | None:
        """Try at most so many candidates; a volley when a chain is complete."""
        for _ in range(candidates):
            if self._chain is None:
                self._chain = self._begun(wanted)
                if self._chain is None:
                    return None
            elif self._chain.complete:
                chain, self._chain = self._chain, None
                self._hopeless |= chain.hopeless
                if chain.cells:
                    return chain.volley()
            else:
                self._chain.try_one()
        return None

    def as_it_is(self, fewest: int) -> Volley | None:
        """The chain that is being built, if it hits so many cells already."""
        chain = self._chain
        if chain is None or len(chain.cells) < fewest:
            return None
        self._chain = None
        self._hopeless |= chain.hopeless
        return chain.volley()

    def can_propose(self, wanted: Collection[Cell]) -> bool:
        """Whether a chain is begun, or there are wanted cells that one may hit."""
        return self._chain is not None or any(cell in wanted for cell in self._order if self._may_hit(cell))

    def _may_hit(self, cell: Cell) -> bool:
        return cell not in self._hopeless and self._planner.failed[cell] < _MOST_FAILED

    def _begun(self, wanted: Collection[Cell]) -> _Chain | None:
        cells = [cell for cell in self._order if cell in wanted and self._may_hit(cell)]
        for cell in cells:
            layout = _layout(cell, self._planner.pool)
            if layout is not None:
                fitting = [other for other in cells if other != cell and _rows(other, *layout) is not None]
                return _Chain(self._planner, *layout, [cell, *fitting], self._random)
            self._hopeless.add(cell)
        return None


class _Chain:
    """One chain as it grows.

    Attributes:
        cells: those that it hits.
        hopeless: those that no candidate hit beside the rows that go on, even alone.
    """

    def __init__(self, planner: Planner, going_on: int, window: int, cells: list[Cell], rng: random.Random) -> None:
        self.cells: set[Cell] = set()
        self.hopeless: set[Cell] = set()
        self._forecast = planner.forecast
        self._going_on = going_on
        self._window = Pool(planner.pool.page_size, window)
        self._untried = deque(cells)
        self._tries = 0
        self._hit_alone = False
        self._added_shapes: list[tuple[Cell, int]] = []
        # Cells in a row that were hit alone and not together.
        self._not_together = 0
        self._taken_back = 0
        self._random = rng
        self._last_step = 0
        longest = planner.pool.page_size - 2
        held = spread(planner.pool.pages - window, going_on, going_on)
        rows = [row_of(planner.pool, pages, None, longest) for pages in held]
        # The first ends soon, which opens admission; the second takes the window, so that the first candidate has it
        # for itself as any other has.
        prelude = [Shape(1, 2), row_of(planner.pool, window - 2, None, 0)]
        self._shapes = [*rows, *prelude]
        self._begin_alone = [*(Shape(shape.prompt_tokens, _LAST_STEPS) for shape in rows), *prelude]

    @property
    def complete(self) -> bool:
        too_long = self._last_step > self._window.page_size - _LAST_STEPS
        return not self._untried or too_long or self._taken_back >= _MOST_TAKEN_BACK

    def try_one(self) -> None:
        cell = self._untried[0]
        self._tries += 1
        added = self._added(cell)
        if added or self._tries == _TRIES:
            self._untried.popleft()
            if not self._hit_alone:
                self.hopeless.add(cell)
            elif not added:
                self._not_together += 1
            self._tries, self._hit_alone = 0, False
        if added:
            self._not_together = 0
        elif self._not_together == _MOST_NOT_TOGETHER:
            self._take_back()

    def _added(self, cell: Cell) -> bool:
        bounds = _rows(cell, self._going_on, self._window.pages)
        assert bounds is not None
        rows = bounds[0] if self._tries % 2 else self._random.randint(bounds[0], min(bounds[1], bounds[0] + 4))
        target = TargetStep(cell.need, rows, cell.trailing, cell.after.value)
        candidate = window_candidate(self._window, self._forecast.overlap, target, self._random)
        if candidate is None or cell not in map(cell_of, self._forecast.steps([*self._begin_alone, *candidate])):
            return False
        self._hit_alone = True
        shapes = [*self._shapes, *candidate]
        first_hits: dict[Cell | None, int] = {}
        for step in self._forecast.steps(shapes):
            first_hits.setdefault(cell_of(step), step.step)
        if not first_hits.keys() >= self.cells | {cell}:
            return False
        self._shapes = shapes
        self._added_shapes.append((cell, len(candidate)))
        self.cells.add(cell)
        self._last_step = max(first_hits[hit] for hit in self.cells)
        return True

    def _take_back(self) -> None:
        """The candidate that was added last does not leave the server as it was: nothing goes together with it."""
        self._not_together = 0
        self._taken_back += 1
        if self._added_shapes:
            cell, shapes = self._added_shapes.pop()
            del self._shapes[-shapes:]
            self.cells.discard(cell)
            self._untried.append(cell)

    def volley(self) -> Volley:
        shapes: tuple[Shape, ...] = tuple(self._shapes)
        steps = self._forecast.steps(shapes)
        cut = self._forecast.cut(shapes, self._last_step)
        steps_of_cut = self._forecast.steps(cut)
        if self.cells <= set(map(cell_of, steps_of_cut)):
            shapes, steps = cut, steps_of_cut
        return Volley(JOINT, shapes, steps, frozenset(self.cells))


def _can_be_hit_in_window(cell: Cell) -> bool:
    """In no candidate does the last row cross, when it joins with one page free or is not to be retracted."""
    if cell.trailing:
        return True
    return cell.after is not After.RETRACTION and (cell.after is not After.PREFILL or cell.need > 1)


def _layout(cell: Cell, pool: Pool) -> tuple[int, int] | None:
    """Rows that go on, and pages of the window; None when no candidate for the cell can stand beside any."""
    for window in _WINDOWS:
        if 2 * window > pool.pages:
            return None
        most = power_bucket_end(cell.batch_size) - cell.need - cell.trailing
        # As many as can be, for short prompts, that leave other cells of as large a batch their rows.
        going_on = min(most, max(1, cell.batch_size - window // 2, cell.batch_size // 2))
        if going_on >= 1 and _rows(cell, going_on, window) is not None:
            return going_on, window
    return None


def _rows(cell: Cell, going_on: int, window: int) -> tuple[int, int] | None:
    """Fewest and most rows of a candidate, for a batch in the cell and with pages for all of them; None if none do."""
    fewest = max(cell.need + cell.trailing, cell.batch_size - going_on)
    most = min(power_bucket_end(cell.batch_size) - going_on, window // 2)
    return (fewest, most) if fewest <= most else None
