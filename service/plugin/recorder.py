"""Flight recorder: the writing end of a flight recording, for the scheduler process.

Standard library only, and cheap: each decode step pays for it.
"""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

from .flight import AllocationOutcome, Totals
from .flight_format import (
    ERROR_OFFSET,
    ERROR_SIZE,
    FORMAT_VERSION,
    HEADER_SIZE,
    IDENTITY,
    MAGIC,
    OUTCOME,
    OUTCOME_OFFSET,
    RECORD,
    TOTALS,
    TOTALS_OFFSET,
    TOTALS_STRUCT,
    read_totals,
)

DEFAULT_CAPACITY = 65_536

(
    _DECODE_STEPS,
    _CROSSING,
    _TIGHT,
    _CLAMPED,
    _CRITICAL,
    _EXTENDS,
    _TIGHT_EXTENDS,
    _RETRACTED,
    _EVICTED,
    _SHORTFALLS,
    _EXCEPTIONS,
    _LAST_STEP_NS,
) = range(len(TOTALS))

# In Python 3.11 to look up a member of an enum is a function call, too much for what each decode step pays.
_ENTERED, _SHORT = int(AllocationOutcome.ENTERED), int(AllocationOutcome.SHORT)


class FlightRecorder:
    """The writing end. One per scheduler process; not safe for use by several threads.

    Raises:
        OSError: the file cannot be made, or the disk has no room for it. Nothing is left behind then.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        page_size: int,
        pool_pages: int,
        sglang_version: str,
        allocator: str,
        rank: int = 0,
        capacity: int = DEFAULT_CAPACITY,
    ) -> None:
        size = HEADER_SIZE + capacity * RECORD.size
        # A new file each time: a reader of an older recording keeps its own mapping.
        partial = Path(f"{os.fspath(path)}.{os.getpid()}.partial")
        try:
            with partial.open("w+b") as file:
                # Allocate for real: a sparse mapping on a full disk would be a SIGBUS inside SGLang.
                os.posix_fallocate(file.fileno(), 0, size)
                self._map = mmap.mmap(file.fileno(), size)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        # struct.pack_into clears what it is about to write, which a reader in another process could see.
        self._totals = memoryview(self._map)[TOTALS_OFFSET : TOTALS_OFFSET + TOTALS_STRUCT.size].cast("Q")
        IDENTITY.pack_into(
            self._map,
            0,
            MAGIC,
            FORMAT_VERSION,
            HEADER_SIZE,
            RECORD.size,
            capacity,
            page_size,
            pool_pages,
            os.getpid(),
            rank,
            time.monotonic_ns(),
            time.time(),
            sglang_version.encode()[:32],
            allocator.encode()[:16],
        )
        partial.replace(path)
        self._capacity = capacity
        self._slot = HEADER_SIZE
        self._step = 0
        # Since the last decode step.
        self._extends = self._retracted = self._evicted = 0

    def enter(self, batch_size: int, need: int, free: int, trailing: int, cached: int = 0) -> None:
        """Record a decode step whose pages are about to be allocated; the arguments are those of `DecodeStep`."""
        now = time.monotonic_ns()
        step = self._step + 1
        slot = HEADER_SIZE + (self._step % self._capacity) * RECORD.size
        RECORD.pack_into(
            self._map,
            slot,
            step,
            now,
            batch_size,
            need,
            free,
            trailing,
            self._extends,
            self._retracted,
            self._evicted,
            cached,
            _ENTERED,
            0,
            step,
        )
        self._extends = self._retracted = self._evicted = 0
        self._step = step
        self._slot = slot
        totals = self._totals
        if need > 0:
            totals[_CROSSING] += 1
            if trailing > 0:
                totals[_CLAMPED] += 1
            if need == free:
                totals[_TIGHT] += 1
                if trailing > 0:
                    totals[_CRITICAL] += 1
        totals[_LAST_STEP_NS] = now
        totals[_DECODE_STEPS] = step

    def leave(self, outcome: AllocationOutcome) -> None:
        """Record what became of the step last entered."""
        OUTCOME.pack_into(self._map, self._slot + OUTCOME_OFFSET, outcome)
        if outcome == _SHORT:
            self._totals[_SHORTFALLS] += 1

    def extended(self, tight: bool = False) -> None:
        """Count one prefill batch.

        Args:
            tight: whether it needed exactly the pages that are free.
        """
        self._extends += 1
        self._totals[_EXTENDS] += 1
        if tight:
            self._totals[_TIGHT_EXTENDS] += 1

    def evicted(self, pages: int) -> None:
        """Count pages that the prefix cache gave up."""
        self._evicted += pages
        self._totals[_EVICTED] += pages

    def retracted(self, requests: int) -> None:
        """Count requests that the scheduler took out of the running batch for lack of pages."""
        self._retracted += requests
        self._totals[_RETRACTED] += requests

    def raised(self, error: BaseException) -> None:
        """Keep an exception that came out of the allocator: its type and message are the crash's first evidence."""
        text = f"{type(error).__name__}: {error}".encode(errors="replace")[: ERROR_SIZE - 1]
        self._map[ERROR_OFFSET : ERROR_OFFSET + len(text) + 1] = text + b"\0"
        # After the text: whoever sees the count grow finds it.
        self._totals[_EXCEPTIONS] += 1

    def totals(self) -> Totals:
        return read_totals(self._map)
