"""Which volley to send next to reach the cells of the edge that were not hit yet (pure)."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from ..coverage import After, Cell, cell_of
from ..coverage.cells import need_bucket_end, power_bucket_end
from ..sglang.pages import Pool
from ..sglang.releases import NEWEST
from ..sglang.rules import Rules
from ..sglang.shape import Shape
from ..sglang.steps import ModelStep
from .idle_candidates import TargetStep, idle_candidate
from .random_volleys import RANDOM_VOLLEYS
from .volley_forecast import VolleyForecast

JOINT = "joint"
RETRACTION = "retraction"
KINDS = (JOINT, RETRACTION, *RANDOM_VOLLEYS)

_TRIES_AT_ONCE = 24
_DRAWS = 3


@dataclass(frozen=True, slots=True)
class Volley:
    """Requests for an idle server, and what follows from them.

    Attributes:
        kind: one of `KINDS`.
        shapes: in the order in which they are sent.
        foreseen: the decode steps that the model tells.
        cells: what it is aimed at; none: at nothing in particular.
    """

    kind: str
    shapes: tuple[Shape, ...]
    foreseen: Sequence[ModelStep]
    cells: frozenset[Cell] = frozenset()


class Planner:
    """Finds volleys on the model of the scheduler, a few candidates at a time.

    A cell for which no candidate of some hits, or whose volley was sent in vain, is put behind all others. It gets
    other candidates when its turn comes again.

    Args:
        cells: what is to be hit; their order is drawn.
        chunked_prefill_size: SGLang's argument of that name, tokens.
        seed: the same seed and calls give the same volleys.
        rules: how the server's release schedules.

    Attributes:
        forecast: the model of the scheduler.
        rules: those that it follows; what was planned before they are changed is forgotten.
        volley_by_cell: the last volley that hit each cell, on the model.
        failed: how often a cell was put back.
    """

    def __init__(
        self,
        pool: Pool,
        overlap: bool,
        cells: Collection[Cell],
        chunked_prefill_size: int,
        seed: int,
        rules: Rules = NEWEST,
    ) -> None:
        self.pool = pool
        self.volley_by_cell: dict[Cell, Volley] = {}
        self.failed: Counter[Cell] = Counter()
        self._overlap = overlap
        self.forecast = VolleyForecast(pool, overlap, chunked_prefill_size, rules)
        self._seed = seed
        self._random = random.Random(f"{seed} order")
        order = sorted(cells)
        self._random.shuffle(order)
        self._queue = deque(order)
        self._tried: Counter[Cell] = Counter()

    @property
    def rules(self) -> Rules:
        return self.forecast.rules

    @rules.setter
    def rules(self, rules: Rules) -> None:
        self.forecast = replace(self.forecast, rules=rules)
        self.volley_by_cell.clear()
        self.failed.clear()
        self._tried.clear()

    def propose(self, wanted: Collection[Cell], candidates: int) -> Volley | None:
        """Try at most so many candidates for the wanted cells; the first volley that hits one."""
        for _ in range(len(self._queue)):
            if self._queue[0] in wanted:
                break
            self._queue.rotate(-1)
        else:
            return None
        cell = self._queue[0]
        for _ in range(candidates):
            volley = self._candidate(cell)
            if volley is not None:
                self.volley_by_cell[cell] = volley
                self._queue.rotate(-1)
                return volley
            if self._tried[cell] % _TRIES_AT_ONCE == 0:
                self.put_back(cell)
                break
        return None

    def put_back(self, cell: Cell) -> None:
        """It was not hit: the others come first."""
        self.failed[cell] += 1
        self._queue.remove(cell)
        self._queue.append(cell)

    def draw(self, kind: str) -> Volley | None:
        """A volley of this kind, whatever it hits: of several drawn the one with the largest share of tight steps."""
        if kind not in RANDOM_VOLLEYS:
            known = [volley for volley in self.volley_by_cell.values() if volley.kind == kind]
            return self._random.choice(known) if known else None
        best: Volley | None = None
        for _ in range(_DRAWS):
            shapes = RANDOM_VOLLEYS[kind](self.pool, self._random)
            steps = self.forecast.steps(shapes)
            if steps and (best is None or _tight_share(steps) > _tight_share(best.foreseen)):
                best = Volley(kind, tuple(shapes), steps)
        return best

    def foresee(self, shapes: Sequence[Shape], rules: Rules) -> Sequence[ModelStep]:
        """The decode steps of a volley under other rules."""
        return replace(self.forecast, rules=rules).steps(shapes)

    def _candidate(self, cell: Cell) -> Volley | None:
        attempt = self._tried[cell]
        self._tried[cell] += 1
        rng = random.Random(f"{self._seed} {cell} {attempt}")
        target = numbers(cell, self.pool, attempt, rng)
        shapes = None if target is None else idle_candidate(self.pool, self._overlap, target, attempt, rng)
        if not shapes:
            return None
        steps = self.forecast.steps(shapes)
        hit = next((step.step for step in steps if cell_of(step) == cell), None)
        if hit is None:
            return None
        if hit < len(steps):
            # What comes after it is wanted by nobody.
            cut = self.forecast.cut(shapes, hit)
            steps_of_cut = self.forecast.steps(cut)
            if len(steps_of_cut) < len(steps) and any(cell_of(step) == cell for step in steps_of_cut):
                shapes, steps = cut, steps_of_cut
        kind = RETRACTION if cell.after is After.RETRACTION else JOINT
        return Volley(kind, tuple(shapes), steps, frozenset({cell}))


def numbers(cell: Cell, pool: Pool, attempt: int, rng: random.Random) -> TargetStep | None:
    """Exact numbers in a cell: at first the smallest batch, then others that the pool can hold."""
    if attempt == 0:
        rows = max(cell.batch_size, cell.need + cell.trailing)
        return TargetStep(cell.need, rows, cell.trailing, cell.after.value)
    most_rows = min(power_bucket_end(cell.batch_size), pool.pages - cell.need)
    need = _random_between(cell.need, min(need_bucket_end(cell.need), most_rows - cell.trailing), rng)
    trailing = _random_between(cell.trailing, min(power_bucket_end(cell.trailing), most_rows - need), rng)
    rows = _random_between(max(cell.batch_size, need + trailing), min(most_rows, pool.pages - need), rng)
    if rows < need + trailing or rows + need > pool.pages:
        return None
    return TargetStep(need, rows, trailing, cell.after.value)


def _random_between(least: int, most: int, rng: random.Random) -> int:
    return rng.randint(least, most) if most > least else least


def _tight_share(steps: Sequence[ModelStep]) -> float:
    return sum(step.tight for step in steps) / len(steps)
