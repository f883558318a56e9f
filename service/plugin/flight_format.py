"""Layout of a flight recording, a memory-mapped ring file of the last decode steps, plus running totals.

The scheduler process writes it, one record a decode step, *before* the allocator is called; the controller and
the load driver read it while it is written, and after the writer is gone. A file mapping belongs to the kernel's page
cache, so what was written survives a SIGKILL of the writer; it does not survive a power cut.

Little endian::

    0      header, HEADER_SIZE bytes: identity, running totals, the last error
    4096   capacity records of RECORD.size bytes; decode step n (from 1) is at slot (n - 1) % capacity

A record has the fields of `DecodeStep`, and starts and ends with its step number, written first and last. A reader
looks at the end, reads the record, and looks at its start again. Another number at either means that it has met a
record that is being written, or that the ring has overwritten, and it skips that. Of the totals, the fields of
`Totals`, each number is stored at once.

The format's number is made from all that is in the file, by name, place and width. So a reader refuses a recording
whose counters or step fields are not its own, and nobody has to remember to count a version up.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Sequence
from dataclasses import fields

from .flight import STEP_FIELDS, StepField, Totals

MAGIC = b"LASTPAGE"
HEADER_SIZE = 4096

# The first field again is the last, at a multiple of 8 bytes.
_CODES = "".join("Q" if field.wide else "I" for field in STEP_FIELDS)
RECORD = struct.Struct(f"<{_CODES}{-struct.calcsize('<' + _CODES) % 8}xQ")
MARK = struct.Struct("<Q")
OUTCOME = struct.Struct("<I")
OUTCOME_FIELD = [field.name for field in STEP_FIELDS].index("outcome")
OUTCOME_OFFSET = struct.calcsize("<" + _CODES[:OUTCOME_FIELD])

# magic, format, header size, record size, capacity, page size, pool pages, pid, rank, opened (monotonic ns),
# opened (unix seconds), SGLang version, allocator variant
IDENTITY = struct.Struct("<8sIIIIIIIIQd32s16s")
TOTALS_OFFSET = 256
ERROR_OFFSET = 1024
ERROR_SIZE = 2048

TOTALS = tuple(field.name for field in fields(Totals))
TOTALS_STRUCT = struct.Struct(f"<{len(TOTALS)}Q")


def format_of(totals: Sequence[str], step_fields: Sequence[StepField]) -> int:
    """The number of a format, 32 bits: another one for every other layout."""
    layout = (
        *(f"{field.name}:{64 if field.wide else 32}" for field in step_fields),
        *totals,
        *(IDENTITY.format, HEADER_SIZE, TOTALS_OFFSET, ERROR_OFFSET, ERROR_SIZE),
    )
    return zlib.crc32(" ".join(map(str, layout)).encode())


FORMAT = format_of(TOTALS, STEP_FIELDS)


def read_totals(mapping: mmap.mmap) -> Totals:
    """The totals in a recording's header."""
    return Totals(*TOTALS_STRUCT.unpack_from(mapping, TOTALS_OFFSET))
