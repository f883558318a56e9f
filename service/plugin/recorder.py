"""Flight recorder: a memory-mapped ring file of the last decode steps, plus running totals.

The scheduler process writes it, one record a decode step, *before* the allocator is called; the controller and
the load driver read it while it is written, and after the writer is gone. A file mapping belongs to the kernel's page
cache, so what was written survives a SIGKILL of the writer; it does not survive a power cut.

Standard library only: the same module is imported inside SGLang and by the controller.

File layout, little endian::

    0      header, HEADER_SIZE bytes: identity, running totals, the last error
    4096   capacity records of RECORD.size bytes; decode step n (from 1) is at slot (n - 1) % capacity

A record starts and ends with its step number, written first and last. A reader looks at the end, reads the record,
and looks at its start again. Another number at either means that it has met a record that is being written, or that
the ring has overwritten, and it skips that. Of the totals each number is stored at once.
"""

from __future__ import annotations

import enum
import mmap
import os
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAGIC = b"LASTPAGE"
FORMAT_VERSION = 1
HEADER_SIZE = 4096
DEFAULT_CAPACITY = 65_536

# step, monotonic ns, batch rows, need, free, trailing rows, extends, retracted, outcome, reserved, step again
RECORD = struct.Struct("<QQIIIIIIIIQ")
_MARK = struct.Struct("<Q")
_OUTCOME_OFFSET = struct.calcsize("<QQIIIIII")
_OUTCOME = struct.Struct("<I")
_OUTCOME_FIELD = 8

# magic, format version, header size, record size, capacity, page size, pool pages, pid, rank, opened (monotonic ns),
# opened (unix seconds), SGLang version, allocator variant
_IDENTITY = struct.Struct("<8sIIIIIIIIQd32s16s")
_TOTALS_OFFSET = 256
_ERROR_OFFSET = 1024
_ERROR_SIZE = 2048

TOTALS = (
    "decode_steps",
    "crossing_steps",
    "tight_steps",
    "clamped_steps",
    "critical_steps",
    "extends",
    "retracted",
    "shortfalls",
    "exceptions",
    "last_step_ns",
)
_TOTALS = struct.Struct(f"<{len(TOTALS)}Q")
(
    _DECODE_STEPS,
    _CROSSING,
    _TIGHT,
    _CLAMPED,
    _CRITICAL,
    _EXTENDS,
    _RETRACTED,
    _SHORTFALLS,
    _EXCEPTIONS,
    _LAST_STEP_NS,
) = range(len(TOTALS))


class NotAFlightFile(ValueError):
    """The file is not a flight recording that this version can read."""


class Outcome(enum.IntEnum):
    """What became of a decode step's allocation."""

    ENTERED = 0  # the allocator was called and has not come back: it is running, or the process died in it
    RETURNED = 1
    SHORT = 2  # the allocator returned None: fewer free pages than needed
    RAISED = 3


# In Python 3.11 to look up a member of an enum is a function call, too much for what each decode step pays.
_ENTERED, _SHORT = int(Outcome.ENTERED), int(Outcome.SHORT)


_OUTCOMES = frozenset(Outcome)


@dataclass(frozen=True, slots=True)
class DecodeStep:
    """One call of the allocator's `alloc_decode`, as it was about to be made.

    Attributes:
        step: decode step number, from 1.
        at_ns: CLOCK_MONOTONIC, nanoseconds, comparable between processes of one machine.
        batch_size: batch rows.
        need: rows that need a new page.
        free: free pages.
        trailing: rows behind the last row that needs a page; 0 when no row does.
        extends: prefill batches (`alloc_extend` calls) since the previous decode step.
        retracted: requests retracted since the previous decode step.
        outcome: what became of the call.
    """

    step: int
    at_ns: int
    batch_size: int
    need: int
    free: int
    trailing: int
    extends: int
    retracted: int
    outcome: Outcome

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
    """Running totals since the recorder was opened."""

    decode_steps: int = 0
    crossing_steps: int = 0
    tight_steps: int = 0
    clamped_steps: int = 0
    critical_steps: int = 0
    extends: int = 0
    retracted: int = 0
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
        self._totals = memoryview(self._map)[_TOTALS_OFFSET : _TOTALS_OFFSET + _TOTALS.size].cast("Q")
        _IDENTITY.pack_into(
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
        self._extends = self._retracted = 0

    def enter(self, batch_size: int, need: int, free: int, trailing: int) -> None:
        """Record a decode step whose pages are about to be allocated."""
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
            _ENTERED,
            0,
            step,
        )
        self._extends = self._retracted = 0
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

    def leave(self, outcome: Outcome) -> None:
        """Record what became of the step last entered."""
        _OUTCOME.pack_into(self._map, self._slot + _OUTCOME_OFFSET, outcome)
        if outcome == _SHORT:
            self._totals[_SHORTFALLS] += 1

    def extended(self) -> None:
        """Count one prefill batch."""
        self._extends += 1
        self._totals[_EXTENDS] += 1

    def retracted(self, requests: int) -> None:
        """Count requests that the scheduler took out of the running batch for lack of pages."""
        self._retracted += requests
        self._totals[_RETRACTED] += requests

    def raised(self, error: BaseException) -> None:
        """Keep an exception that came out of the allocator: its type and message are the crash's first evidence."""
        text = f"{type(error).__name__}: {error}".encode(errors="replace")[: _ERROR_SIZE - 1]
        self._map[_ERROR_OFFSET : _ERROR_OFFSET + len(text) + 1] = text + b"\0"
        # After the text: whoever sees the count grow finds it.
        self._totals[_EXCEPTIONS] += 1

    def totals(self) -> Totals:
        return _read_totals(self._map)


class FlightReader:
    """The reading end: sees what the writer writes as it is written, and the same after the writer is gone."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Map a recording.

        Raises:
            FileNotFoundError: there is no such file.
            NotAFlightFile: it is no recording, or one of another format.
        """
        with Path(path).open("rb") as file:
            if os.fstat(file.fileno()).st_size < HEADER_SIZE:
                raise NotAFlightFile(f"{path}: too short for a flight recording")
            self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        (
            magic,
            version,
            header_size,
            record_size,
            capacity,
            page_size,
            pool_pages,
            pid,
            rank,
            opened_ns,
            opened_at,
            sglang_version,
            allocator,
        ) = _IDENTITY.unpack_from(self._map, 0)
        if magic != MAGIC:
            raise NotAFlightFile(f"{path}: not a flight recording (it starts with {magic!r}, expected {MAGIC!r})")
        if (version, header_size, record_size) != (FORMAT_VERSION, HEADER_SIZE, RECORD.size):
            raise NotAFlightFile(f"{path}: recording format {version}, this version reads {FORMAT_VERSION}")
        if capacity < 1 or len(self._map) < HEADER_SIZE + capacity * RECORD.size:
            raise NotAFlightFile(f"{path}: cut short, {len(self._map)} bytes for {capacity} records")
        self.identity = Identity(
            page_size=page_size,
            pool_pages=pool_pages,
            capacity=capacity,
            pid=pid,
            rank=rank,
            opened_ns=opened_ns,
            opened_at=opened_at,
            sglang_version=sglang_version.rstrip(b"\0").decode(errors="replace"),
            allocator=allocator.rstrip(b"\0").decode(errors="replace"),
        )

    def totals(self) -> Totals:
        return _read_totals(self._map)

    def error(self) -> str:
        """The last exception that came out of the allocator, or an empty string."""
        return self._map[_ERROR_OFFSET : _ERROR_OFFSET + _ERROR_SIZE].split(b"\0", 1)[0].decode(errors="replace")

    def steps(self, after: int = 0) -> Iterator[DecodeStep]:
        """The steps with a number above `after` that are still in the ring, oldest first."""
        last = self.totals().decode_steps
        capacity = self.identity.capacity
        for step in range(max(after, last - capacity) + 1, last + 1):
            slot = HEADER_SIZE + ((step - 1) % capacity) * RECORD.size
            (end,) = _MARK.unpack_from(self._map, slot + RECORD.size - _MARK.size)
            record = RECORD.unpack_from(self._map, slot)
            (start,) = _MARK.unpack_from(self._map, slot)
            if start == end == step and record[_OUTCOME_FIELD] in _OUTCOMES:
                yield _decode_step(record)

    def last(self, count: int) -> list[DecodeStep]:
        """The last `count` steps, oldest first."""
        return list(self.steps(after=max(0, self.totals().decode_steps - count)))

    def close(self) -> None:
        self._map.close()


def _decode_step(record: tuple[int, ...]) -> DecodeStep:
    step, at_ns, batch_size, need, free, trailing, extends, retracted, outcome, _reserved, _step = record
    return DecodeStep(step, at_ns, batch_size, need, free, trailing, extends, retracted, Outcome(outcome))


def _read_totals(mapping: mmap.mmap) -> Totals:
    return Totals(*_TOTALS.unpack_from(mapping, _TOTALS_OFFSET))
