"""What the model of the scheduler works on, and what it tells: releases, decode steps, batches."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from .admission import Request


class Release(enum.Enum):
    """Releases that differ in a rule that is modelled."""

    V0_5_18 = "0.5.18"
    V0_5_23 = "0.5.23"


@dataclass(frozen=True, slots=True)
class ModelStep:
    """One decode step, as the probe inside a server would have recorded it; an `ObservedStep`.

    Attributes:
        step: decode step number, from 1.
        batch_size: batch rows.
        need: rows that need a new page.
        free: free pages.
        trailing: rows behind the last row that needs a page; 0 when no row does.
        extends: prefill batches since the previous decode step.
        retracted: requests retracted since the previous decode step.
        evicted: pages that the prefix cache gave up since the previous decode step.
        cached: pages in the prefix cache that could be evicted.
    """

    step: int
    batch_size: int
    need: int
    free: int
    trailing: int
    extends: int
    retracted: int
    evicted: int = 0
    cached: int = 0

    @property
    def crossing(self) -> bool:
        return self.need > 0

    @property
    def tight(self) -> bool:
        return 0 < self.need == self.free

    @property
    def critical(self) -> bool:
        """Without the clamp this very step reads one element past the free list."""
        return self.tight and self.trailing > 0


@dataclass(eq=False)
class Batch:
    """schedule_batch.py, ScheduleBatch.

    Attributes:
        is_full: admits nobody until a row leaves. It belongs to the object, so it is lost when the running batch was
            empty and a prefill batch takes its place.
        unfinished: the request whose prompt this prefill does not bring to its end.
    """

    requests: list[Request] = field(default_factory=list)
    is_prefill: bool = False
    is_full: bool = False
    unfinished: Request | None = None

    def drop(self, leaving: list[Request]) -> None:
        """filter_batch."""
        self.requests = _without(self.requests, leaving)


def _without(requests: list[Request], leaving: list[Request]) -> list[Request]:
    if not leaving:
        return requests
    gone = set(map(id, leaving))
    return [request for request in requests if id(request) not in gone]
