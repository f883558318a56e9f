"""The reading end of a flight recording, for the controller. Standard library only."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from .flight import AllocationOutcome, DecodeStep, Identity, NotAFlightFile, Totals
from .flight_format import (
    ERROR_OFFSET,
    ERROR_SIZE,
    FORMAT,
    HEADER_SIZE,
    IDENTITY,
    MAGIC,
    MARK,
    OUTCOME_FIELD,
    RECORD,
    read_totals,
)

_OUTCOMES = {outcome.value: outcome for outcome in AllocationOutcome}


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
            format,
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
        ) = IDENTITY.unpack_from(self._map, 0)
        if magic != MAGIC:
            raise NotAFlightFile(f"{path}: not a flight recording (it starts with {magic!r}, expected {MAGIC!r})")
        if (format, header_size, record_size) != (FORMAT, HEADER_SIZE, RECORD.size):
            raise NotAFlightFile(f"{path}: recording format {format:x}, this version reads {FORMAT:x}")
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
        return read_totals(self._map)

    def error(self) -> str:
        """The last exception that came out of the allocator, or an empty string."""
        return self._map[ERROR_OFFSET : ERROR_OFFSET + ERROR_SIZE].split(b"\0", 1)[0].decode(errors="replace")

    def steps(self, after: int = 0) -> Iterator[DecodeStep]:
        """The steps with a number above `after` that are still in the ring, oldest first."""
        last = self.totals().decode_steps
        capacity = self.identity.capacity
        for step in range(max(after, last - capacity) + 1, last + 1):
            slot = HEADER_SIZE + ((step - 1) % capacity) * RECORD.size
            (end,) = MARK.unpack_from(self._map, slot + RECORD.size - MARK.size)
            record = RECORD.unpack_from(self._map, slot)
            (start,) = MARK.unpack_from(self._map, slot)
            if start == end == step and record[OUTCOME_FIELD] in _OUTCOMES:
                yield _decode_step(record)

    def last(self, count: int) -> list[DecodeStep]:
        """The last `count` steps, oldest first."""
        return list(self.steps(after=max(0, self.totals().decode_steps - count)))

    def close(self) -> None:
        self._map.close()


def _decode_step(record: tuple[int, ...]) -> DecodeStep:
    values = list(record[:-1])
    values[OUTCOME_FIELD] = _OUTCOMES[values[OUTCOME_FIELD]]
    return DecodeStep(*values)  # type: ignore[arg-type]
