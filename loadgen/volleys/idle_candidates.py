"""Candidates for volleys with one decode step of a given kind, in which as many pages are free as needed (pure).

A candidate is a list of requests. Before the step they hold all pages of the pool but those that the step needs. Four
rows in a pool of 10 pages, for a step that needs 2 pages and has 1 trailing row:

    row   holds     crosses
    1     1 page    in step 2
    2     1 page    never
    3     1 page    in step 2
    4     5 pages   never: it is behind row 3, so it is trailing

Step 2 needs 2 pages, and 10 - 8 = 2 are free. It does not matter which row holds the pages that are too many.

Admission stands in the way (`schedule_policy.py`, `PrefillAdder`). A pass charges each request a page too many, and a
request that does not fit closes admission until another one leaves. There are four ways round it, and a candidate takes
some of them:

- The last rows hold the pages that are too many. The first pass does not admit them and the second does. Above, the
  first pass charges rows 1 to 3 two pages each. That leaves 4, too few for row 4. The second pass finds 7 free.
- Some rows cross at earlier steps and go on. They take the pages that admission has left over.
- With overlap scheduling, a request that ended with the step before still holds its pages, and is no row any more
  (`Scheduler.update_running_batch`).
- *Openers* are requests of one or two tokens. They end soon, and admission is open again for the requests that wait.

A retraction (`ScheduleBatch.retract_decode`) takes the row with the fewest new tokens; of several, the one with the
longest prompt. The rows that stay are sorted in the same way. So the rows that are to be trailing join late, after
openers, and the row that is to be retracted, the *victim*, joins with them.

A candidate need not hit: it is tried on the model of the scheduler. The first attempts take what is most often right,
the later ones are random.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from ..sglang.pages import Pool
from ..sglang.shape import Shape

_EARLY_CROSSINGS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)
"""How many rows cross earlier, by attempt: each eats a page that admission left over."""

_SIMPLE_ATTEMPTS = 4
_LONG_PROMPT_PAGES = 16


@dataclass(frozen=True, slots=True)
class TargetStep:
    """The step that is aimed at.

    Attributes:
        need: rows that cross.
        batch_size: rows.
        trailing: trailing rows.
        after: what is to have come just before: `decode`, `prefill` or `retraction`.
        surplus: free pages beyond those needed.
    """

    need: int
    batch_size: int
    trailing: int
    after: str
    surplus: int = 0


def idle_candidate(
    pool: Pool, overlap: bool, target: TargetStep, attempt: int, rng: random.Random
) -> Sequence[Shape] | None:
    """A candidate for a volley that hits, in the order of its requests; None when there is none of the kind drawn."""
    if target.after == "retraction":
        return _in_two_groups(pool, overlap, target, 1, attempt, rng)
    if target.after == "prefill" and attempt % 3 == 2:
        return _in_two_groups(pool, overlap, target, 0, attempt, rng)
    return _together(pool, overlap, target, attempt, rng)


def _together(pool: Pool, overlap: bool, target: TargetStep, attempt: int, rng: random.Random) -> list[Shape] | None:
    """All rows begin to decode in the same step; in step `at` of it `need` of them cross."""
    at = 1 if target.after == "prefill" else rng.choice((2, 2, 2, 2, 3, 4))
    rows = target.batch_size
    most_early = min(rows - target.need, pool.pages - target.need - rows) if at > 1 else 0
    early = _early_crossings(most_early, attempt, rng)
    pages = pool.pages - target.need - target.surplus - early
    # Pages of a request that ends with the step before.
    in_flight = 0
    if overlap and (rows == 1 or rng.random() < (0.5 if target.trailing == 0 else 0.1)):
        in_flight = rng.randint(1, max(1, pages - rows))
        pages -= in_flight
    if pages < rows or early < 0:
        return None
    last = rows - 1 - target.trailing
    crossing = dict.fromkeys([last, *rng.sample(range(last), target.need - 1)], at)
    others = [row for row in range(rows) if row not in crossing]
    crossing |= {row: rng.randint(1, at - 1) for row in rng.sample(others, early)}
    sharing = rng.choice((1, 1, 2, target.need, target.need + early, (target.need + early + 1) // 2))
    held = spread(pages, rows, enough_sharing(pages - rows, rows, sharing))
    shapes = [row_of(pool, held[row], crossing.get(row), at) for row in range(rows)]
    if in_flight:
        shapes.insert(rng.choice((0, rows)), row_of(pool, in_flight, None, at - 1))
    _add_openers(shapes, attempt, rng)
    return shapes


def _in_two_groups(
    pool: Pool, overlap: bool, target: TargetStep, victims: int, attempt: int, rng: random.Random
) -> list[Shape] | None:
    """Some rows begin to decode, those that cross among them; the trailing rows, and victims, join later."""
    elders = target.batch_size - target.trailing
    openers = 1 if attempt < _SIMPLE_ATTEMPTS else rng.choice((1, 1, 1, 2, 2, 3, 4))
    # The last opener ends with decode step `openers + 1`; with overlap that opens admission a step later.
    joined = openers + (3 if overlap else 2)
    at = joined if victims == 0 else joined + rng.randint(0, 1 if attempt < 8 else 3)
    most_early = min(target.batch_size - target.need, pool.pages - target.need - target.batch_size)
    early = _early_crossings(most_early, attempt, rng)
    # Each victim holds one page, which comes back.
    pages = pool.pages - target.trailing - target.need - target.surplus - early
    filling = pool.pages - 1 - pages - (openers - 1)
    if early < 0 or pages < elders or filling < 1:
        return None
    early_elders = min(early, elders - target.need)
    sharing = rng.choice((1, 1, target.need, (target.need + 1) // 2))
    held = spread(pages, elders, enough_sharing(pages - elders, target.need, sharing))
    crossing = dict.fromkeys(range(elders - target.need, elders), at)
    crossing |= {
        row: rng.randint(max(1, at - 2), at - 1) for row in rng.sample(range(elders - target.need), early_elders)
    }
    first = [row_of(pool, held[row], crossing.get(row), at) for row in range(elders)]
    short = [row_of(pool, 1, None, 2 + number) for number in range(openers - 1)]
    first = first + short if rng.random() < 0.7 else short + first
    # It leaves one page, too little for anybody who waits; or it is the last that a pass admits, and closes admission.
    if attempt >= _SIMPLE_ATTEMPTS and rng.random() < 0.3:
        filling = rng.randint(1, filling)
    first.append(row_of(pool, filling, None, 1))
    early_younger = early - early_elders
    # The first of them join when the longest opener, which ends with step 1, has gone.
    last_step = at - (2 if overlap else 1)
    second = [
        row_of(pool, 1, rng.randint(1, 3) if row < early_younger else None, last_step) for row in range(target.trailing)
    ]
    rng.shuffle(second)
    for _ in range(victims):
        # Longer than the prompts of the other rows, and no longer in its answer than it must be to be there.
        answer = at - openers if attempt < 8 else rng.randint(max(2, at - openers - 1), at + 1)
        second.insert(rng.randint(0, len(second)), Shape(2, answer))
    _add_openers(second, attempt, rng)
    return first + second


def _add_openers(shapes: list[Shape], attempt: int, rng: random.Random) -> None:
    if attempt >= _SIMPLE_ATTEMPTS:
        for _ in range(rng.randint(0, 3)):
            shapes.insert(rng.randint(0, len(shapes)), Shape(1, rng.choice((1, 1, 2, 3))))


def _early_crossings(most: int, attempt: int, rng: random.Random) -> int:
    """-1 when the pages do not suffice at all."""
    if most < 0:
        return -1
    return min(most, _EARLY_CROSSINGS[attempt]) if attempt < len(_EARLY_CROSSINGS) else rng.randint(0, most)


def enough_sharing(extra: int, most: int, sharing: int) -> int:
    """How many rows share `extra` pages: more than `sharing`, up to `most`, where prompts would be long otherwise.

    Prefill costs the square of a prompt's length.
    """
    return min(most, max(sharing, extra // _LONG_PROMPT_PAGES))


def spread(pages: int, rows: int, sharing: int) -> list[int]:
    """Pages of each row: one, and the last `sharing` rows share what is more."""
    extra = pages - rows
    extra_each = [extra // sharing + (place < extra % sharing) for place in range(sharing)]
    return [1] * (rows - sharing) + [1 + more for more in reversed(extra_each)]


def row_of(pool: Pool, pages: int, crosses_at: int | None, last_step: int) -> Shape:
    """A request that holds `pages` pages after prefill.

    Args:
        crosses_at: its own decode step in which it takes one more; None: none before its step `page_size`.
        last_step: its own decode step with which it ends; 0: with its prefill.
    """
    prompt = pages * pool.page_size + 1 - crosses_at if crosses_at else (pages - 1) * pool.page_size + 1
    return Shape(prompt, last_step + 1)
