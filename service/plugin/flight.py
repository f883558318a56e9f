"""What a flight recording says: decode steps, running totals, and who wrote it (values only).

Standard library only: the same module is imported inside SGLang and by the controller.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from .measures import Counters


class NotAFlightFile(ValueError):
    """The file is not a flight recording that this version can read."""


class AllocationOutcome(enum.IntEnum):
    """What became of a decode step's allocation."""

    ENTERED = 0  # the allocator was called and has not come back: it is running, or the process died in it
    RETURNED = 1
    SHORT = 2  # the allocator returned None: fewer free pages than needed
    RAISED = 3


@dataclass(frozen=True)
class StepField:
    """A field of a step's record, from which the layout, `steps.jsonl` and the table of steps are made.

    Attributes:
        wide: 64 bits, else 32.
        heading: its column in the table of steps; empty for what is shown otherwise.
        seldom: its column is left out where all seldom fields are 0 in all steps.
        counted: it is what the counter of the same name grew by since the previous decode step.
    """

    name: str
    help: str
    wide: bool = False
    heading: str = ""
    seldom: bool = False
    counted: bool = False


_KEY = "recorded"


def _recorded(help: str, **more: Any) -> Mapping[str, StepField]:
    return {_KEY: StepField("", help, **more)}


@dataclass(frozen=True, slots=True)
class DecodeStep:
    """One call of the allocator's `alloc_decode`, as it was about to be made; fields in the order of the record."""

    step: int = field(metadata=_recorded("Decode step number, from 1.", wide=True, heading="step"))
    at_ns: int = field(
        metadata=_recorded("CLOCK_MONOTONIC, nanoseconds, comparable between processes of one machine.", wide=True)
    )
    batch_size: int = field(metadata=_recorded("Batch rows.", heading="rows"))
    need: int = field(metadata=_recorded("Rows that need a new page.", heading="need"))
    free: int = field(metadata=_recorded("Free pages.", heading="free"))
    trailing: int = field(
        metadata=_recorded("Rows after the last row that needs a page; 0 when no row does.", heading="trailing")
    )
    outcome: AllocationOutcome = field(metadata=_recorded("What became of the call."))
    prefill_batches: int = field(
        default=0,
        metadata=_recorded(
            "Prefill batches (`alloc_extend` calls) since the previous decode step.", heading="prefills", counted=True
        ),
    )
    retractions: int = field(
        default=0,
        metadata=_recorded("Requests retracted since the previous decode step.", heading="retractions", counted=True),
    )
    evicted_pages: int = field(
        default=0,
        metadata=_recorded(
            "Pages that the prefix cache gave up since the previous decode step.",
            heading="evicted",
            seldom=True,
            counted=True,
        ),
    )
    cached: int = field(
        default=0,
        metadata=_recorded(
            "Pages in the prefix cache that no running request holds, so that they could be evicted.",
            heading="cached",
            seldom=True,
        ),
    )

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


STEP_FIELDS: tuple[StepField, ...] = tuple(replace(each.metadata[_KEY], name=each.name) for each in fields(DecodeStep))


@dataclass(frozen=True, slots=True)
class Totals(Counters):
    """Running totals since the recorder was opened.

    Attributes:
        last_step_ns: when the last decode step was entered; CLOCK_MONOTONIC, nanoseconds.
    """

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
