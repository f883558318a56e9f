"""What crashes look like in the logs of SGLang, torch_npu and CANN, as a table.

Sources: SGLang 0.5.18 and 0.5.23; CANN's `rt_error_codes.h`; torch_npu's and CANN's error messages in public reports.
Of the rows that match a log line the one of most weight decides for it, of equals the first.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass


class CrashKind(str, enum.Enum):
    """What brought an engine down."""

    OOB_INDEX = "oob_index"  # an index past the end of a tensor
    AICORE_ERROR = "aicore_error"
    AICORE_TIMEOUT = "aicore_timeout"
    AICPU_ERROR = "aicpu_error"
    DEVICE_OOM = "device_oom"
    DEVICE_TIMEOUT = "device_timeout"
    DEVICE_RUNTIME = "device_runtime"  # the device's runtime failed, and no more precise cause is known
    DEVICE_LOST = "device_lost"
    HARDWARE_MEMORY = "hardware_memory"  # uncorrectable memory errors
    LINK_ERROR = "link_error"
    HCCL = "hccl"  # a collective operation between devices
    HOST_OOM = "host_oom"
    ALLOCATOR_EXHAUSTED = "allocator_exhausted"  # no page left where SGLang had counted on one
    POOL_LEAK = "pool_leak"  # SGLang's own accounting of the pool does not add up
    HANG = "hang"
    SCHEDULER_EXCEPTION = "scheduler_exception"  # any other exception that ended the scheduler
    KILLED = "killed"
    ABORTED = "aborted"
    SEGFAULT = "segfault"
    BUS_ERROR = "bus_error"
    UNKNOWN = "unknown"


class Weight(enum.IntEnum):
    """How much a log line says; a lower number wins, and among equals the earliest line."""

    CAUSE = 0  # what went wrong
    SYMPTOM = 1  # something went wrong; this is how it showed, and another cause explains it
    LAYER = 2  # names the layer that reports, or follows from something else


@dataclass(frozen=True)
class Signature:
    """A pattern and what it means.

    Attributes:
        pattern: searched in single lines. Groups `index` and `bound` are an index and the first one not allowed, `gib`
            is an amount of memory.
    """

    pattern: re.Pattern[str]
    kind: CrashKind
    weight: Weight
    meaning: str


def _rows(weight: Weight, *rows: tuple[str, CrashKind, str]) -> tuple[Signature, ...]:
    return tuple(Signature(re.compile(pattern), kind, weight, meaning) for pattern, kind, meaning in rows)


def _code_rows(weight: Weight, *rows: tuple[tuple[int, ...], CrashKind, str]) -> tuple[Signature, ...]:
    said = r"(?:error code is|error code:|retCode is|runtime result ?=)\s*"
    return tuple(
        Signature(re.compile(rf"{said}(?:{'|'.join(map(str, codes))})\b"), kind, weight, meaning)
        for codes, kind, meaning in rows
    )


_K = CrashKind

PHRASES = (
    *_rows(
        Weight.CAUSE,
        (
            r"Index (?P<index>\d+) out of range\[0 (?P<bound>\d+)\)",
            _K.OOB_INDEX,
            "a gather on the device was asked for an index out of range",
        ),
        (
            r"IndexError: index (?P<index>-?\d+) is out of bounds for dimension \d+ with size (?P<bound>\d+)",
            _K.OOB_INDEX,
            "a tensor was indexed out of bounds",
        ),
        (
            r"NPU out of memory\. Tried to allocate(?: (?P<gib>[\d.]+) GiB)?",
            _K.DEVICE_OOM,
            "the device had no memory left",
        ),
        (r"Failed to apply for memory|\bEL0004\b", _K.DEVICE_OOM, "the device's runtime could not allocate memory"),
        (r"Decode out of memory", _K.ALLOCATOR_EXHAUSTED, "no page for a decode step that SGLang had planned"),
        (r"Prefill out of memory", _K.ALLOCATOR_EXHAUSTED, "no pages for a prefill that SGLang had planned"),
        (r"KV cache is full! Bug in memory estimation", _K.ALLOCATOR_EXHAUSTED, "SGLang's estimate was wrong"),
        (r"alloc_req_slots runs out of memory", _K.ALLOCATOR_EXHAUSTED, "no request slot where SGLang had planned one"),
        (r"memory leak detected!|Pool Mem Leak Detected!", _K.POOL_LEAK, "the pool's accounting does not add up"),
        (r"The aicore execution times out", _K.AICORE_TIMEOUT, "a kernel on the AI Core did not end in time"),
        (
            r"The DDR address of the MTE instruction is out of range",
            _K.AICORE_ERROR,
            "a kernel read or wrote an address that is not the device's",
        ),
        (
            r"there is an (?:exception of )?(?:fftsplus )?(?:aivec|aivector|aicore) (?:error|exception)",
            _K.AICORE_ERROR,
            "a kernel failed on the AI Core",
        ),
        (
            r"Aicore kernel execute failed|The aicore execution is abnormal|The vector core execution is abnormal"
            r"|(?:vector core|aicore) exception",
            _K.AICORE_ERROR,
            "a kernel failed on the AI Core",
        ),
        (
            r"Out of memory: Killed process|oom-kill:|\bMemoryError\b|std::bad_alloc"
            r"|DefaultCPUAllocator: can't allocate memory",
            _K.HOST_OOM,
            "the host had no memory left",
        ),
    ),
    *_rows(
        Weight.SYMPTOM,
        # The soft watchdog reports and goes on.
        (r"Scheduler watchdog timeout(?!.*soft=True)", _K.HANG, "SGLang's own watchdog saw no progress"),
        (
            r"Watchdog caught collective operation timeout: WorkHCCL\(|HCCL watchdog thread terminated with exception"
            r"|hccl fftsplus task timeout|\bEI0002\b|\bEI0006\b",
            _K.HCCL,
            "a collective operation did not come to its end on every device",
        ),
        (r"\bEE1002\b", _K.DEVICE_TIMEOUT, "waiting for the device's stream took too long"),
        (r"\bERR\d\d006\b", _K.DEVICE_OOM, "torch_npu reports a memory error"),
        (r"Fatal Python error: Segmentation fault", _K.SEGFAULT, "a process of the engine made an invalid access"),
        (r"Fatal Python error: Bus error", _K.BUS_ERROR, "a process of the engine made an invalid access"),
        (r"Fatal Python error: Aborted", _K.ABORTED, "a process of the engine gave up"),
    ),
    *_rows(
        Weight.LAYER,
        (r"\bERR02\d{3}\b|\bERR\d\d200\b|\bEI9999\b", _K.HCCL, "torch_npu reports an error of HCCL, without a cause"),
        (r"\bERR\d\d011\b", _K.DEVICE_TIMEOUT, "torch_npu reports a timeout, without a cause"),
        (
            r"\bERR0[0134]\d{3}\b|\bERR99\d{3}\b|\bEZ9999\b|\bEE9999\b|\bEH9999\b|\bE39999\b",
            _K.DEVICE_RUNTIME,
            "the device's software reports an error, without a cause",
        ),
    ),
)

ERROR_CODES = (
    *_code_rows(
        Weight.CAUSE,
        ((507015, 507035), _K.AICORE_ERROR, "a kernel failed on the AI Core"),
        ((507014, 507034), _K.AICORE_TIMEOUT, "a kernel on the AI Core did not end in time"),
        (
            (507016, 507036, 507042, 507043, 507044, 507045),
            _K.AICORE_ERROR,
            "a kernel on the AI Core trapped, or read or wrote out of range",
        ),
        ((507017, 507018), _K.AICPU_ERROR, "a kernel failed on the AI CPU, or did not end in time"),
        ((507053, 507054, 507055), _K.HARDWARE_MEMORY, "the device's memory has uncorrectable errors"),
        ((507056,), _K.LINK_ERROR, "a link between devices failed"),
        ((507010, 507901), _K.DEVICE_LOST, "the host lost contact with the device"),
        ((207001, 207018), _K.DEVICE_OOM, "the device's runtime could not allocate memory"),
    ),
    *_code_rows(
        Weight.SYMPTOM,
        ((507001,), _K.DEVICE_RUNTIME, "the device's task scheduler failed"),
        ((507046, 507047, 507048), _K.DEVICE_TIMEOUT, "waiting for the device took too long"),
        ((507049,), _K.DEVICE_RUNTIME, "a task failed on the device"),
        ((507057,), _K.LINK_ERROR, "another device is suspected, or a local access out of bounds"),
        ((107027,), _K.DEVICE_RUNTIME, "a stream that is being captured was waited for"),
    ),
    *_code_rows(
        Weight.LAYER,
        ((507011,), _K.DEVICE_RUNTIME, "the execution failed on the device, for a reason given elsewhere"),
        ((107022,), _K.DEVICE_RUNTIME, "a task was aborted, for a reason given elsewhere"),
    ),
)

SIGNATURES = PHRASES + ERROR_CODES

# Look alike, and are SGLang at work: the pool was full, and requests were put back into the queue.
NOT_A_CRASH = re.compile(r"KV cache pool is full\. Retract requests|Decode out of memory happened\. #retracted_reqs")
