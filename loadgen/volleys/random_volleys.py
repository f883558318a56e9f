"""Volleys of a kind, with lengths drawn at random, for pools of at least six pages (pure)."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from ..sglang.pages import Pool, crossing_once
from ..sglang.shape import Shape

_FIRST_CROSSING = 2


def staggered(pool: Pool, rng: random.Random) -> Sequence[Shape]:
    """Groups of rows that cross and end one after the other, and successors that wait for their pages.

    A group of `n` rows that held `p` pages each gives back `n * (p + 1)` pages. Its successors are charged just that in
    one pass of admissions, and take `n * p` of them, which leaves the `n` pages that the next group needs: see
    `docs/edge.md`. One more row holds what the groups leave of the pool.
    """
    # The first pass of admissions takes at least two groups, charged a page too many for each request.
    held = rng.choice([pages for pages in (1, 1, 1, 2, 3) if 2 * (pages + 1) <= pool.pages - 2])
    need = rng.choice([rows for rows in (1, 1, 2, 2, 3, 4, 6, 8) if 2 * rows * (held + 1) <= pool.pages - 2])
    most = min((pool.pages - 2) // (need * (held + 1)), pool.page_size // 2)
    groups = rng.randint(2, most)
    rounds = rng.randint(1, max(1, min(8, pool.page_size // groups - 2)))
    page_size = pool.page_size
    seats = [crossing_once(held, _FIRST_CROSSING + group, page_size) for group in range(groups) for _ in range(need)]
    successors = [crossing_once(held, groups, page_size)] * (need * groups * rounds)
    steps = _FIRST_CROSSING + groups * (rounds + 1)
    rest = pool.pages - need - held * len(seats)
    return [*seats, Shape((rest - 1) * page_size + 1, min(steps, page_size)), *successors]


def long_answers(pool: Pool, rng: random.Random) -> Sequence[Shape]:
    """Few rows that cross again and again, until the pool no longer holds them all."""
    rows = rng.randint(2, max(2, min(16, pool.pages // 3)))
    most = max(2, min(2 * pool.pages // rows, 3) * pool.page_size)
    longest_prompt = max(1, pool.tokens // (2 * rows))
    return [Shape(rng.randint(1, longest_prompt), rng.randint(2, most)) for _ in range(rows)]


def burst(pool: Pool, rng: random.Random) -> Sequence[Shape]:
    """Many more requests than fit, all at once, of short prompts and answers."""
    return [
        Shape(rng.randint(1, pool.page_size), rng.randint(2, max(2, pool.page_size // 2)))
        for _ in range(min(100, 2 * pool.pages))
    ]


RANDOM_VOLLEYS: Mapping[str, Callable[[Pool, random.Random], Sequence[Shape]]] = {
    "staggered": staggered,
    "long_answers": long_answers,
    "burst": burst,
}
"""By name."""
