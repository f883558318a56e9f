"""Candidates for volleys on a server whose pool is filled by its prefix cache (pure).

A step at the edge is then one of three, since `alloc_paged_token_slots_decode` (`mem_cache/allocation.py`) evicts until
a page is free for every row:

- the cache has pages left, and every row needs a page, of just as many that are free (`with_cached_pages_left`);
- the cache has just given up its last pages. A prefill does that before the first step of a volley that fills the pool,
  so the candidates for a prefill (`idle_candidate`) hit it; later on, a step does, when a request that has just ended
  has left full pages (`after_end`);
- rows were retracted, and the prompts of those that had full pages stay in the tree, to be evicted at once
  (`after_end`, `after_retraction`).

A candidate need not hit: it is tried on the model of the scheduler.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from ..requests.planned_request import PlannedRequest
from ..sglang.pages import Pool
from ..sglang.shape import Segment, Shape
from .idle_candidates import TargetStep, row_of, spread

_FLOODING_PAGES = 7


def flooding(pool: Pool) -> Sequence[Shape]:
    """A volley after which only its own pages are cached, whatever was before: its one decode step needs all others.

    Each request is charged a page too many in admission, and two are left for the last. All rows but that one are full
    to the brim; one page a row, which is all that is left, has to be free for the step.
    """
    shapes = []
    left = pool.pages - 2
    while left >= 2:
        charged = left if left <= _FLOODING_PAGES + 2 else _FLOODING_PAGES + 1
        shapes.append(Shape((charged - 1) * pool.page_size, 2))
        left -= charged
    return [*shapes, Shape(1, 2)]


def clearing(rows: int) -> Sequence[Shape]:
    """Rows that leave nothing in the cache, and for which it gives up pages until twice as many as rows are free:
    each holds one, and one has to be free for each."""
    return [Shape(1, 2)] * rows


def with_cached_pages_left(pool: Pool, free: int, need: int, at: int, rng: random.Random) -> Sequence[Shape] | None:
    """All rows cross in step `at`, and hold what was free but for the pages that they need."""
    held = free - need
    if held < need:
        return None
    pages = [1] * need
    pages[rng.randrange(need)] += held - need
    return [row_of(pool, each, at, at) for each in pages]


def sharing(pool: Pool, target: TargetStep, rng: random.Random) -> Sequence[PlannedRequest]:
    """Rows that cross in their first step, of whose prompts all but one page, or all, is the same.

    When the results of their prefill are processed, the tree has their first pages once, and the others come back
    (`checkpoint`): more rows cross than there are pages for all prompts. That is done before the first step for all but
    the last prefill, so requests of one token part the prefills.
    """
    segment = Segment(rng.getrandbits(31), pool.page_size)
    alike = PlannedRequest(Shape(pool.page_size, 3), (segment,))
    not_crossing = target.batch_size - target.need
    spare = max(0, pool.pages - 1 - target.need - not_crossing - rng.choice((0, 0, 0, 1, 1, 2, 3, 5, 8)))
    held = spread(spare + not_crossing, not_crossing, rng.randint(1, not_crossing)) if not_crossing else []
    others = [PlannedRequest(row_of(pool, pages, None, 2)) for pages in held]
    front = not_crossing - target.trailing
    requests = [*others[:front], *[alike] * target.need, *others[front:]]
    for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 4))):
        requests.insert(rng.randint(0, len(requests)), PlannedRequest(Shape(1, 1)))
    return requests


def after_end(pool: Pool, overlap: bool, target: TargetStep, rng: random.Random) -> Sequence[Shape] | None:
    """Rows cross when a request has just ended, of which only full pages are left; those are evicted.

    After a retraction they do not suffice: one more row, with few tokens, was in the pool.
    """
    victims = int(target.after == "retraction")
    left = min(rng.choice((1, 1, 1, 2, 3)), target.need - victims)
    at = rng.choice((3, 3, 4, 5, 6))
    # With overlap scheduling the pages come back a step later.
    ends = at - 2 if overlap else at - 1
    free = target.need - left - victims
    last = target.batch_size - 1 - target.trailing
    pages = pool.pages - free - left - victims - target.surplus
    if left < 1 or free < 0 or last < target.need - 1 or pages < target.batch_size:
        return None
    early = rng.randint(0, min(target.batch_size - target.need, pages - target.batch_size))
    crossing = dict.fromkeys([last, *rng.sample(range(last), target.need - 1)], at)
    others = [place for place in range(target.batch_size) if place not in crossing]
    crossing |= {place: rng.randint(1, at - 1) for place in rng.sample(others, early)}
    sharing = min(target.batch_size, rng.choice((1, 1, 2, target.need, target.batch_size)))
    held = spread(pages - early, target.batch_size, sharing)
    shapes = [row_of(pool, held[place], crossing.get(place), at) for place in range(target.batch_size)]
    shapes.insert(rng.randint(0, len(shapes)), Shape(left * pool.page_size - ends, ends + 1))
    return shapes + [Shape(rng.choice((1, 2, pool.page_size - at - 1)), at + 2)] * victims


def after_retraction(pool: Pool, target: TargetStep, rng: random.Random) -> Sequence[Shape] | None:
    """All rows begin together. That with the longest prompt is retracted, and the others are sorted, shortest first.

    Its full pages are in the tree, and are evicted. So rows that are to be trailing have longer prompts than the
    crossing ones.
    """
    at = rng.choice((2, 2, 3, 3, 4, 5))
    victim = rng.randint(2, max(2, min(target.need, 6)))
    front = target.batch_size - target.need - target.trailing
    if victim > target.need or front < 0:
        return None
    early_front, early_trailing = rng.randint(0, front), rng.randint(0, target.trailing)
    # Those that cross earlier have longer prompts than those that cross now and hold as many pages.
    crossing = [2 if early_front else 1] * target.need
    trailing = [crossing[0] + 1] * target.trailing
    free = target.need - victim
    held = victim + front + early_front + early_trailing + sum(crossing) + sum(trailing)
    spare = pool.pages - free - held - target.surplus
    if spare < 0:
        return None
    longest = trailing or crossing
    sharing = rng.randint(1, len(longest))
    longest[:] = [
        pages + more - 1
        for pages, more in zip(longest, spread(spare + len(longest), len(longest), sharing), strict=True)
    ]
    if max(longest) >= victim:
        return None
    shapes = [row_of(pool, 1, rng.randint(1, at - 1), at) for _ in range(early_front)]
    shapes += [Shape(rng.randint(1, pool.page_size - at - 1), at + 1) for _ in range(front - early_front)]
    shapes += [row_of(pool, pages, at, at + 1) for pages in crossing]
    shapes += [
        row_of(pool, pages, rng.randint(1, at - 1) if place < early_trailing else None, at + 1)
        for place, pages in enumerate(trailing)
    ]
    shapes.append(Shape((victim - 1) * pool.page_size + rng.randint(1, pool.page_size - at - 1), at + 2))
    rng.shuffle(shapes)
    return shapes
