"""Flight recorder: the writing end of a flight recording, for the scheduler process.

Standard library only, and cheap: each decode step pays for it.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path

from .flight import STEP_FIELDS, AllocationOutcome, Totals
from .flight_format import (
    ERROR_OFFSET,
    ERROR_SIZE,
    FORMAT,
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

_PLACE = {name: place for place, name in enumerate(TOTALS)}
_DECODE_STEPS = _PLACE["decode_steps"]
_CROSSING = _PLACE["crossing_steps"]
_TIGHT = _PLACE["tight_steps"]
_CLAMPED = _PLACE["clamped_steps"]
_CRITICAL = _PLACE["critical_steps"]
_SHORTFALLS = _PLACE["shortfalls"]
_EXCEPTIONS = _PLACE["exceptions"]
_LAST_STEP_NS = _PLACE["last_step_ns"]

# Counters whose growth stands in each step's record, and their places there.
_GROWING = {name: place for place, name in enumerate(field.name for field in STEP_FIELDS if field.counted)}
_NO_GROWTH = [0] * len(_GROWING)

# In Python 3.11 to look up a member of an enum is a function call, too much for what each decode step pays.
_ENTERED, _SHORT = int(AllocationOutcome.ENTERED), int(AllocationOutcome.SHORT)
_RECORD_SIZE = RECORD.size
_write_record, _write_outcome = RECORD.pack_into, OUTCOME.pack_into


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
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """
        Args:
            clock_ns: nanoseconds; another clock than the machine's is for an engine whose time is simulated.
        """
        self._clock_ns = clock_ns
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
            FORMAT,
            HEADER_SIZE,
            RECORD.size,
            capacity,
            page_size,
            pool_pages,
            os.getpid(),
            rank,
            clock_ns(),
            time.time(),
            sglang_version.encode()[:32],
            allocator.encode()[:16],
        )
        partial.replace(path)
        self._capacity = capacity
        self._slot = HEADER_SIZE
        self._step = 0
        # Of each of _GROWING, since the last decode step. Most steps have none: then it is that one list.
        self._growth = _NO_GROWTH

    def enter(self, batch_size: int, need: int, free: int, trailing: int, cached: int = 0) -> None:
        """Record a decode step whose pages are about to be allocated; the arguments are those of `DecodeStep`."""
        now = self._clock_ns()
        step = self._step + 1
        slot = HEADER_SIZE + (self._step % self._capacity) * _RECORD_SIZE
        _write_record(
            self._map,
            slot,
            step,
            now,
            batch_size,
            need,
            free,
            trailing,
            _ENTERED,
            *self._growth,
            cached,
            step,
        )
        self._growth = _NO_GROWTH
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
        _write_outcome(self._map, self._slot + OUTCOME_OFFSET, outcome)
        if outcome == _SHORT:
            self._totals[_SHORTFALLS] += 1

    def count(self, counter: str, amount: int = 1) -> None:
        """Add to one of the running totals.

        Raises:
            KeyError: there is no such total.
        """
        self._totals[_PLACE[counter]] += amount
        if counter in _GROWING:
            if self._growth is _NO_GROWTH:
                self._growth = _NO_GROWTH.copy()
            self._growth[_GROWING[counter]] += amount

    def raised(self, error: BaseException) -> None:
        """Keep an exception that came out of the allocator: its type and message are the crash's first evidence."""
        text = f"{type(error).__name__}: {error}".encode(errors="replace")[: ERROR_SIZE - 1]
        self._map[ERROR_OFFSET : ERROR_OFFSET + len(text) + 1] = text + b"\0"
        # After the text: whoever sees the count grow finds it.
        self._totals[_EXCEPTIONS] += 1

    def totals(self) -> Totals:
        return read_totals(self._map)
