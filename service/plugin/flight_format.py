"""Layout of a flight recording, a memory-mapped ring file of the last decode steps, plus running totals.

The scheduler process writes it, one record a decode step, *before* the allocator is called; the controller and
the load driver read it while it is written, and after the writer is gone. A file mapping belongs to the kernel's page
cache, so what was written survives a SIGKILL of the writer; it does not survive a power cut.

Little endian::

    0      header, HEADER_SIZE bytes: identity, running totals, the last error
    4096   capacity records of RECORD.size bytes; decode step n (from 1) is at slot (n - 1) % capacity

A record starts and ends with its step number, written first and last. A reader looks at the end, reads the record,
and looks at its start again. Another number at either means that it has met a record that is being written, or that
the ring has overwritten, and it skips that. Of the totals each number is stored at once.

Format 1 had neither evicted nor cached pages in its records, and is no longer read.
"""

from __future__ import annotations

import mmap
import struct

from .flight import Totals

MAGIC = b"LASTPAGE"
FORMAT_VERSION = 2
HEADER_SIZE = 4096

# step, monotonic ns, batch rows, need, free, trailing rows, prefill_batches, retractions, evicted_pages, cached,
# outcome, reserved, step again
RECORD = struct.Struct("<QQIIIIIIIIIIQ")
MARK = struct.Struct("<Q")
OUTCOME = struct.Struct("<I")
OUTCOME_OFFSET = struct.calcsize("<QQIIIIIIII")
OUTCOME_FIELD = 10

# magic, format version, header size, record size, capacity, page size, pool pages, pid, rank, opened (monotonic ns),
# opened (unix seconds), SGLang version, allocator variant
IDENTITY = struct.Struct("<8sIIIIIIIIQd32s16s")
TOTALS_OFFSET = 256
ERROR_OFFSET = 1024
ERROR_SIZE = 2048

TOTALS = tuple(Totals.__dataclass_fields__)
TOTALS_STRUCT = struct.Struct(f"<{len(TOTALS)}Q")


def read_totals(mapping: mmap.mmap) -> Totals:
    """The totals in a recording's header."""
    return Totals(*TOTALS_STRUCT.unpack_from(mapping, TOTALS_OFFSET))
