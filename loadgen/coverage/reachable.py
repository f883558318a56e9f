"""Which cells can exist on a server (pure): the others are not counted against a load.

Each rule excludes what SGLang cannot do. They were read in release 0.5.23, under `sglang/srt/`, and hold for 0.5.18
too. They assume its usual scheduling: no speculation, no mixed chunks, no interval between prefills, one scheduler.
Where nothing proves a cell impossible it counts as reachable.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from .cells import After, Cell, Filler, Relation, need_bucket, need_bucket_end, power_bucket, power_bucket_end

if TYPE_CHECKING:
    from ..sglang.server import ServerConfiguration

_MOST_RUNNING = 4096


class Situation(NamedTuple):
    """A decode step at the edge, in exact numbers; the fields are those of `Cell`."""

    need: int
    batch_size: int
    trailing: int
    relation: Relation
    filler: Filler
    after: After


@functools.lru_cache(maxsize=32)
def reachable(server: ServerConfiguration) -> frozenset[Cell]:
    """The cells that can exist on a server with this pool, with or without prefix cache and overlap scheduling."""
    cells = _cells(min(server.pool.pages, most_running(server)))
    return frozenset(cell for cell in cells if any(possible(server, situation) for situation in _easiest(cell)))


def possible(server: ServerConfiguration, situation: Situation) -> bool:
    """Whether a decode step of these exact numbers can come about."""
    need, batch_size, trailing, relation, _filler, after = situation
    if not 1 <= need <= batch_size or not 0 <= trailing <= batch_size - need:
        return False
    if not _fits_together(server, situation):
        return False
    outside = _rows_outside(server, situation)
    if outside is None:
        return False
    # A row that was retracted, or that ends, was running a moment ago.
    running = batch_size + outside + (after is After.RETRACTION)
    pages = _pages_of_rows(server, situation) + outside + _cached_at_least(situation) + _free_at_least(need, relation)
    return running <= most_running(server) and pages <= server.pool.pages


def most_running(server: ServerConfiguration) -> int:
    """The most rows that can hold pages at a time: kv_cache_configurator.py, resolve_max_num_reqs.

    Without a prefix cache they share none, and each admission leaves one free (schedule_policy.py, add_one_req).
    """
    rows = min(server.max_running_requests or _MOST_RUNNING, server.pool.tokens // 2)
    return rows if server.prefix_cache else min(rows, server.pool.pages - 1)


def _free_at_least(need: int, relation: Relation) -> int:
    """Of a step that is one under, more than one over is free: with less it would be that, or tight."""
    return need + {Relation.TIGHT: 0, Relation.ONE_OVER: 1, Relation.ONE_UNDER: 2}[relation]


def _fits_together(server: ServerConfiguration, situation: Situation) -> bool:
    """What the prefix cache rules out.

    `alloc_paged_token_slots_decode` (mem_cache/allocation.py) evicts until a page is free for every row, or nothing is
    left to evict. So, while the cache has pages, at least as many are free as there are rows.
    """
    _, _, _, relation, filler, after = situation
    if filler is Filler.RUNNING_ROWS:
        return after is not After.EVICTION and relation is not Relation.ONE_UNDER
    if not server.prefix_cache:
        return False
    if after in (After.RETRACTION, After.EVICTION):
        # Pages may have been evicted, the cache may be empty now, and any number free.
        return True
    return relation is not Relation.ONE_UNDER and _free_at_least(situation.need, relation) >= situation.batch_size


def _cached_at_least(situation: Situation) -> int:
    """Evictable pages: there are some where the cache fills the pool and none was evicted, and beside a lone row that
    takes the last page (`_rows_outside`)."""
    if situation.filler is Filler.RUNNING_ROWS:
        return 0
    none_evicted = situation.after in (After.PREFILL, After.DECODE)
    return int(none_evicted or _is_lone_and_tight(situation))


def _is_lone_and_tight(situation: Situation) -> bool:
    return situation.batch_size == 1 and situation.relation is Relation.TIGHT


def _rows_outside(server: ServerConfiguration, situation: Situation) -> int | None:
    """Rows that have to hold pages without being in the batch; None when the step is impossible.

    With overlap scheduling a row whose last token is under way is left out of the batch and still holds its pages
    (scheduler.py, `_reqs_finishing_inflight`). Nothing else is: a step for which there are too few pages is skipped
    while there is such a row, so after a retraction there is none.
    """
    if situation.filler is Filler.PREFIX_CACHE:
        return 0
    # allocator/base.py, max_new_tokens_for_memory: no request grows beyond the pool but for a page and two tokens. So
    # a row that needs a page holds all but two at most, and when it is alone and takes the last one, the other is held
    # by something else.
    lone = _is_lone_and_tight(situation)
    # schedule_policy.py, add_one_req: a request is admitted when its prompt and a page are less than what is free. The
    # pass leaves a page free, two when the prompt fills its last page; and what it admits stands last in the batch. So
    # with one page free the last row does not need one, unless it ended with its first token. When it has left, its
    # pages have come back, and more than one is free.
    after_prefill = situation.after is After.PREFILL and situation.need == 1 and situation.trailing == 0
    if not lone and not (after_prefill and situation.relation is Relation.TIGHT):
        return 0
    return 1 if server.overlap and situation.after is not After.RETRACTION else None


def _pages_of_rows(server: ServerConfiguration, situation: Situation) -> int:
    """The fewest pages that the rows of the batch hold.

    A row that does not need a page has one that is not full, and that one is its own. So is the last page of
    a row that has decoded since its prefill: only prompts go into the tree before a request ends (radix_cache.py,
    `checkpoint`). A row that needs one right after its prefill may share all its pages, once the result of the
    prefill was processed: with overlap scheduling that of the last pass is not yet, and its rows stand last.
    """
    need, batch_size, trailing, _, _, after = situation
    not_needing = batch_size - need
    if after is After.DECODE:
        # Of two tokens a row has written at least two: it is in its third when its page is not full.
        return need + not_needing * (2 if server.pool.page_size == 2 else 1)
    if not server.prefix_cache:
        return batch_size
    own = 1 if server.overlap and trailing == 0 and after is not After.RETRACTION else 0
    return not_needing + min(need, 1 + own)


def _easiest(cell: Cell) -> Iterator[Situation]:
    """Situations of a cell of which one is possible if any is: fewer rows need fewer pages, except that the prefix
    cache asks for all rows, or all but one, to need one."""
    need, batch_size, trailing, relation, filler, after = cell
    most_needing, most_rows = need_bucket_end(need), power_bucket_end(batch_size)
    fewest_rows = max(batch_size, need + trailing)
    if fewest_rows <= most_rows:
        yield Situation(need, fewest_rows, trailing, relation, filler, after)
    for not_needing in (0, 1):
        needing = max(need, batch_size - not_needing)
        if needing <= most_needing and needing + not_needing <= most_rows and trailing <= not_needing:
            yield Situation(needing, needing + not_needing, trailing, relation, filler, after)


def _cells(most_rows: int) -> Iterator[Cell]:
    rows = range(1, most_rows + 1)
    needs = sorted({need_bucket(1 << bits) for bits in range(most_rows.bit_length() + 1)} | {1})
    powers = [power_bucket(1 << bits) for bits in range(most_rows.bit_length())]
    return (
        Cell(need, batch_size, trailing, relation, filler, after)
        for need in needs
        for batch_size in powers
        for trailing in (0, *powers)
        if need + trailing <= power_bucket_end(batch_size) and need in rows
        for relation in Relation
        for filler in Filler
        for after in After
    )
