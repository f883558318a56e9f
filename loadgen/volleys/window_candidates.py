"""Candidates for a server that is not idle: rows that go on fill all of the pool but a window (pure).

They differ from those for an idle server in one rule of admission: whoever does not fit closes it at once, until a row
leaves the batch. So what comes first is admitted in one pass, and of its rows each costs a page too many there. That
page is taken by rows that cross a step or two later, or by a row that joins when an opener has left.

`target.batch_size` counts the rows of the candidate alone; they stand behind those that go on.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from ..sglang.pages import Pool
from ..sglang.shape import Shape
from .idle_candidates import TargetStep, row_of, spread


def window_candidate(window: Pool, overlap: bool, target: TargetStep, rng: random.Random) -> Sequence[Shape] | None:
    """A candidate for a volley that hits, in the order of its requests; None when there is none of the kind drawn."""
    if target.after == "retraction":
        return _retracted(window, overlap, target, rng)
    if target.after == "prefill":
        return _joined(window, overlap, target, rng)
    return _together(window, target, rng)


def _together(window: Pool, target: TargetStep, rng: random.Random) -> list[Shape] | None:
    at = rng.choice((2, 2, 2, 3))
    last = target.batch_size - 1 - target.trailing
    crossing = dict.fromkeys([last, *rng.sample(range(last), target.need - 1)], at)
    early = target.batch_size - target.need
    pages = window.pages - target.need - target.surplus - early
    if pages < target.batch_size:
        return None
    held = spread(pages, target.batch_size, rng.randint(1, target.batch_size))
    return [row_of(window, held[r], crossing.get(r, rng.randint(1, at - 1)), at) for r in range(target.batch_size)]


def _joined(window: Pool, overlap: bool, target: TargetStep, rng: random.Random) -> list[Shape] | None:
    """The last row joins just before the step, in which it crosses itself when there is to be no trailing row."""
    elders = target.batch_size - 1
    crosses_itself = target.trailing == 0
    need = target.need - crosses_itself
    if elders < max(1, need) or target.need < 1 + crosses_itself:
        return None
    # With overlap scheduling it is seen a step later that the opener has ended.
    opener, at = Shape(1, 1 if overlap else 2), 2
    last = elders - 1 if crosses_itself else elders - target.trailing
    crossing = dict.fromkeys([last, *rng.sample(range(last), need - 1)], at) if need else {}
    others = [r for r in range(elders) if r not in crossing]
    early = rng.randint(0, len(others))
    joining = max(2, target.batch_size + 1 - target.need - early)
    pages = window.pages - target.need - target.surplus - early - joining
    if pages < elders:
        return None
    crossing |= dict.fromkeys(rng.sample(others, early), 1)
    held = spread(pages, elders, rng.randint(1, elders))
    first = [row_of(window, held[r], crossing.get(r), at) for r in range(elders)]
    return [*first, opener, row_of(window, joining, 1 if crosses_itself else None, 1)]


def _retracted(window: Pool, overlap: bool, target: TargetStep, rng: random.Random) -> list[Shape] | None:
    """The trailing rows join late, cross at once, and go on; the victim joins with them, or after them."""
    elders, younger = target.batch_size - target.trailing, target.trailing
    # A victim that joins with them is taken first for its longer prompt, which fills two pages.
    joins_after = target.need < 2 or (target.need < 4 and rng.random() < 0.5)
    at = 4 if joins_after else 3
    # The rows that join are charged a page too many each: they take it when they cross, and elders the last of them.
    later = max(0, (2 if joins_after else 3) - target.need)
    before = elders - target.need - later
    if younger < 1 or before < 0:
        return None
    free = 2 * younger + target.need + target.surplus + later
    pages = window.pages - free - before
    if pages < elders:
        return None
    held = spread(pages, elders, rng.randint(1, target.need))
    crossing = [1] * before + [at - 1] * later + [at] * target.need
    first = [row_of(window, held[r], crossing[r], at) for r in range(elders)]
    # With overlap scheduling it is seen a step later that an opener has ended.
    last_step = 0 if overlap else 1
    # It leaves too little for those that are to join later.
    opener = row_of(window, max(1, 2 * younger - 2), None, last_step)
    joining = [row_of(window, 1, 1, at - 1)] * younger
    if joins_after:
        return [*first, opener, *joining, Shape(1, last_step + 1), Shape(2, 3)]
    return [*first, opener, *joining, Shape(window.page_size + 1, 3)]
