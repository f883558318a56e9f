"""Which cells can exist on a server (pure). The others are not counted against a load.

A cell can exist when one decode step that falls in it can. So single steps are looked at (`Situation`), and of each
four things are asked:

1. Does the prefix cache leave so few pages free? (`_cache_allows`)
2. Somebody holds every page that is not free. Can the rows of the batch, or has a row to sit out? (`_rows_outside`)
3. Are so many rows allowed to run at a time?
4. Are there pages enough for the rows, for what sits out, for the cache, and those that are free?

A *no* has to follow from a rule of SGLang (`loadgen/sglang/bounds.py`). Where nothing proves a cell impossible it
counts as reachable.

Example: a pool of 4 pages, no prefix cache. Can a lone row take the last free page? Then the three others are held. The
row holds two of them at most, as SGLang cuts each answer so that a page of the pool is left. So somebody else holds the
third. With overlap scheduling that can be a row which is about to end and sits out: the step is possible. Without it
nobody can, and the step is impossible.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

from ..sglang.bounds import (
    fewest_pages_of_rows,
    free_after_prefill,
    free_beside_cache,
    most_pages_of_a_row,
    most_running,
    rows_can_sit_out,
)
from ..sglang.server import ServerConfiguration
from .cells import After, Cell, Filler, Relation, need_bucket, need_bucket_end, power_bucket, power_bucket_end

_FREE_BEYOND_NEED = {
    Relation.TIGHT: 0,
    Relation.ONE_OVER: 1,
    # At least: with fewer free pages the step would be one of the two above.
    Relation.ONE_UNDER: 2,
}


class Situation(NamedTuple):
    """A decode step at the edge, in exact numbers; the fields are those of `Cell`."""

    need: int
    batch_size: int
    trailing: int
    relation: Relation
    filler: Filler
    after: After

    @property
    def free(self) -> int:
        """Free pages; of a step that is one under, the fewest."""
        return self.need + _FREE_BEYOND_NEED[self.relation]


@functools.lru_cache(maxsize=32)
def reachable(server: ServerConfiguration) -> frozenset[Cell]:
    """The cells that can exist on a server with this pool and these rules."""
    cells = _cells(min(server.pool.pages, most_running(server)))
    return frozenset(cell for cell in cells if any(possible(server, situation) for situation in _easiest(cell)))


def possible(server: ServerConfiguration, situation: Situation) -> bool:
    """Whether a decode step of these exact numbers can come about."""
    need, batch_size, trailing, _, _, after = situation
    if not 1 <= need <= batch_size or not 0 <= trailing <= batch_size - need:
        return False
    outside = _rows_outside(server, situation)
    if outside is None or not _cache_allows(server, situation):
        return False
    # A row that was retracted, or that sits out, was running a moment ago.
    running = batch_size + outside + (after is After.RETRACTION)
    rows = fewest_pages_of_rows(
        server,
        needing=need,
        not_needing=batch_size - need,
        have_decoded=after is After.DECODE,
        last_is_new=server.overlap and trailing == 0 and after is not After.RETRACTION,
    )
    pages = rows + outside + _cached_at_least(server, situation) + situation.free
    return running <= most_running(server) and pages <= server.pool.pages


def _cache_allows(server: ServerConfiguration, situation: Situation) -> bool:
    """Whether the prefix cache leaves so few pages free."""
    if situation.filler is Filler.RUNNING_ROWS:
        # It gave up none.
        return situation.after is not After.EVICTION and situation.relation is not Relation.ONE_UNDER
    if not server.prefix_cache:
        return False
    if situation.after in (After.RETRACTION, After.EVICTION):
        # It may have given up its last pages, and any number may be free.
        return True
    return situation.relation is not Relation.ONE_UNDER and situation.free >= free_beside_cache(situation.batch_size)


def _cached_at_least(server: ServerConfiguration, situation: Situation) -> int:
    """Pages in the prefix cache: it has some when it fills the pool and gave up none, or when nobody else can."""
    if situation.filler is Filler.RUNNING_ROWS:
        return 0
    gave_up_none = situation.after in (After.PREFILL, After.DECODE)
    return int(gave_up_none or _is_more_than_a_lone_row_holds(server, situation))


def _rows_outside(server: ServerConfiguration, situation: Situation) -> int | None:
    """Rows that have to hold pages without being in the batch; None when that is impossible."""
    if situation.filler is Filler.PREFIX_CACHE:
        return 0
    fewest_free = 0
    if situation.after is After.PREFILL:
        fewest_free = free_after_prefill(server, last_row_needs_page=False)
        if situation.free < fewest_free:
            return None
        # What was admitted last is the last row, unless it ended with its first token and sits out.
        fewest_free = free_after_prefill(server, last_row_needs_page=situation.trailing == 0)
    if situation.free >= fewest_free and not _is_more_than_a_lone_row_holds(server, situation):
        return 0
    return 1 if rows_can_sit_out(server) and situation.after is not After.RETRACTION else None


def _is_more_than_a_lone_row_holds(server: ServerConfiguration, situation: Situation) -> bool:
    """Whether the batch is a single row, and somebody else has to hold pages beside it."""
    if situation.batch_size > 1 or situation.relation is Relation.ONE_UNDER:
        return False
    # Once it has taken the page that it needs.
    not_free = server.pool.pages - situation.free + 1
    return not_free > most_pages_of_a_row(server)


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
