"""Decode steps, as a probe inside a server or the model of the scheduler tells of them (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class StepShape(Protocol):
    """What of a decode step decides its cell; `service.plugin.flight.DecodeStep` says what each is."""

    @property
    def batch_size(self) -> int: ...
    @property
    def need(self) -> int: ...
    @property
    def free(self) -> int: ...
    @property
    def trailing(self) -> int: ...
    @property
    def prefill_batches(self) -> int: ...
    @property
    def retractions(self) -> int: ...
    @property
    def evicted_pages(self) -> int: ...
    @property
    def cached(self) -> int: ...


class ObservedStep(StepShape, Protocol):
    """One decode step as the probe inside the server saw it; `service.plugin.flight.DecodeStep` says what each is."""

    @property
    def step(self) -> int: ...
    @property
    def critical(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class ModelStep:
    """One decode step, as the probe inside a server would have recorded it; an `ObservedStep`.

    Attributes:
        step: decode step number, from 1.
        batch_size: batch rows.
        need: rows that need a new page.
        free: free pages.
        trailing: rows after the last row that needs a page; 0 when no row does.
        prefill_batches: prefill batches since the previous decode step.
        retractions: requests retracted since the previous decode step.
        evicted_pages: pages that the prefix cache gave up since the previous decode step.
        cached: pages in the prefix cache that could be evicted.
    """

    step: int
    batch_size: int
    need: int
    free: int
    trailing: int
    prefill_batches: int
    retractions: int
    evicted_pages: int = 0
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
