"""Cells of the edge: decode steps of one kind, as far as an allocator could tell them apart (pure).

A bucket of counts is named by its lower bound.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from ..sglang.steps import StepShape


class Relation(str, enum.Enum):
    """Free pages against need, when the allocator is called."""

    TIGHT = "tight"  # free == need
    ONE_OVER = "one_over"  # free == need + 1
    ONE_UNDER = "one_under"  # free - pages evicted since the last decode step == need - 1


class Filler(str, enum.Enum):
    """What has filled the pool."""

    RUNNING_ROWS = "running_rows"
    PREFIX_CACHE = "prefix_cache"  # it holds pages that can be evicted, or has just given some up


class After(str, enum.Enum):
    """What came between the previous decode step and this one; of several the first in this order."""

    RETRACTION = "retraction"
    EVICTION = "eviction"
    PREFILL = "prefill"
    DECODE = "decode"  # nothing: the previous step was a decode step


class Cell(NamedTuple):
    """Decode steps of one kind.

    Attributes:
        need: bucket of the rows that need a page: 1, 2, 3 (3-4), 5 (5-8), 9 (9-16), ...
        batch_size: bucket of the batch rows: 1, 2 (2-3), 4 (4-7), 8 (8-15), ...
        trailing: bucket of the trailing rows: 0, 1, 2 (2-3), 4 (4-7), ...
    """

    need: int
    batch_size: int
    trailing: int
    relation: Relation
    filler: Filler
    after: After

    def __str__(self) -> str:
        """Such as `tight 1 8 4 running_rows prefill`, from which `parse` makes the same cell."""
        counts = f"{self.need} {self.batch_size} {self.trailing}"
        return f"{self.relation.value} {counts} {self.filler.value} {self.after.value}"

    @classmethod
    def parse(cls, text: str) -> Cell:
        """The cell that a text names.

        Raises:
            ValueError: it names none.
        """
        try:
            relation, need, batch_size, trailing, filler, after = text.split()
            cell = cls(int(need), int(batch_size), int(trailing), Relation(relation), Filler(filler), After(after))
        except ValueError:
            raise ValueError(f"{text!r} is no cell; one is written as in 'tight 1 8 4 running_rows prefill'") from None
        if cell.need < 1 or cell[:3] != (need_bucket(cell.need), *map(power_bucket, cell[1:3])):
            raise ValueError(f"{text!r} is no cell: its counts are not the lower bounds of buckets")
        if cell.need + cell.trailing > power_bucket_end(cell.batch_size):
            raise ValueError(f"{text!r} is no cell: a batch of that size has not so many rows")
        return cell


def cell_of(step: StepShape) -> Cell | None:
    """The cell that a decode step falls in; None when it needs no page, or is not at the edge."""
    relation = _relation(step)
    if relation is None:
        return None
    return Cell(
        need_bucket(step.need),
        power_bucket(step.batch_size),
        power_bucket(step.trailing),
        relation,
        Filler.PREFIX_CACHE if step.cached + step.evicted_pages > 0 else Filler.RUNNING_ROWS,
        _after(step),
    )


def need_bucket(need: int) -> int:
    """Lower bound of the bucket: 1, 2, 3 (3-4), 5 (5-8), 9 (9-16), ...; `need` is at least 1."""
    return 1 if need == 1 else (1 << (need - 1).bit_length() - 1) + 1


def power_bucket(count: int) -> int:
    """Lower bound of the bucket: 0, 1, 2 (2-3), 4 (4-7), ..."""
    return 0 if count == 0 else 1 << count.bit_length() - 1


def need_bucket_end(lowest: int) -> int:
    """The largest need in the bucket."""
    return 1 if lowest == 1 else 2 * (lowest - 1)


def power_bucket_end(lowest: int) -> int:
    """The largest count in the bucket."""
    return 0 if lowest == 0 else 2 * lowest - 1


def _relation(step: StepShape) -> Relation | None:
    if step.need == 0:
        return None
    if step.free == step.need:
        return Relation.TIGHT
    if step.free == step.need + 1:
        return Relation.ONE_OVER
    if step.evicted_pages > 0 and step.free - step.evicted_pages == step.need - 1:
        return Relation.ONE_UNDER
    return None


def _after(step: StepShape) -> After:
    if step.retractions > 0:
        return After.RETRACTION
    if step.evicted_pages > 0:
        return After.EVICTION
    return After.PREFILL if step.prefill_batches > 0 else After.DECODE
