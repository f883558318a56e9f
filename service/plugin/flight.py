"""What a flight recording says: decode steps, running totals, and who wrote it (values only).

Standard library only: the same module is imported inside SGLang and by the controller.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class NotAFlightFile(ValueError):
    """The file is not a flight recording that this version can read."""


class AllocationOutcome(enum.IntEnum):
    """What became of a decode step's allocation."""

    ENTERED = 0  # the allocator was called and has not come back: it is running, or the process died in it
    RETURNED = 1
    SHORT = 2  # the allocator returned None: fewer free pages than needed
    RAISED = 3


@dataclass(frozen=True, slots=True)
class DecodeStep:
    """One call of the allocator's `alloc_decode`, as it was about to be made.

    Attributes:
        step: decode step number, from 1.
        at_ns: CLOCK_MONOTONIC, nanoseconds, comparable between processes of one machine.
        batch_size: batch rows.
        need: rows that need a new page.
        free: free pages.
        trailing: rows after the last row that needs a page; 0 when no row does.
        prefill_batches: prefill batches (`alloc_extend` calls) since the previous decode step.
        retractions: requests retracted since the previous decode step.
        outcome: what became of the call.
        evicted_pages: pages that the prefix cache gave up since the previous decode step.
        cached: pages in the prefix cache that no running request holds, so that they could be evicted.
    """

    step: int
    at_ns: int
    batch_size: int
    need: int
    free: int
    trailing: int
    prefill_batches: int
    retractions: int
    outcome: AllocationOutcome
    evicted_pages: int = 0
    cached: int = 0

    @property
    def crossing(self) -> bool:
        return self.need > 0

    @property
    def tight(self) -> bool:
        return self.need > 0 and self.need == self.free

    @property
    def clamped(self) -> bool:
        """Whether the clamp changes at least one row's index into the free list."""
        return self.need > 0 and self.trailing > 0

    @property
    def critical(self) -> bool:
        """Without the clamp this very step reads one element past the free list."""
        return self.tight and self.clamped


@dataclass(frozen=True, slots=True)
class Totals:
    """Running totals since the recorder was opened.

    Attributes:
        prefill_batches: prefill batches (`alloc_extend` calls).
        tight_prefill_batches: those that needed exactly the pages that were free.
        retractions: requests retracted for lack of pages.
        evicted_pages: pages that the prefix cache gave up.
    """

    decode_steps: int = 0
    crossing_steps: int = 0
    tight_steps: int = 0
    clamped_steps: int = 0
    critical_steps: int = 0
    prefill_batches: int = 0
    tight_prefill_batches: int = 0
    retractions: int = 0
    evicted_pages: int = 0
    shortfalls: int = 0
    exceptions: int = 0
    last_step_ns: int = 0


@dataclass(frozen=True, slots=True)
class Identity:
    """Who wrote the recording.

    Attributes:
        page_size: tokens a page.
        pool_pages: pages the allocator can hand out.
        opened_ns: CLOCK_MONOTONIC, nanoseconds.
        opened_at: Unix time, seconds.
    """

    page_size: int
    pool_pages: int
    capacity: int
    pid: int
    rank: int
    opened_ns: int
    opened_at: float
    sglang_version: str
    allocator: str
