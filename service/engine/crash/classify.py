"""Why an engine went down, from what it left behind. Pure: evidence in, crash out.

The rules, in order:

1. A cause in the log. Errors of an NPU are asynchronous and come from several ranks: the earliest cause wins, and what
   merely follows from a cause never wins over it. An AI Core error yields to an index out of range, which explains it.
2. A cause in the exception that the probe saw come out of the allocator.
3. A hang, when the controller saw one.
4. A symptom in the log.
5. The exception with which one of SGLang's processes ended.
6. A layer that reported an error in the log.
7. How the process ended.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import NamedTuple

from service.engine.crash.crash import Crash
from service.engine.crash.signatures import NOT_A_CRASH, SIGNATURES, CrashKind, Signature, Weight
from service.engine.process.death import signal_name
from service.plugin.flight import AllocationOutcome

__all__ = ["Crash", "CrashKind", "Evidence", "classify"]

# An engine that logged this many batches after an error has survived that error.
_BATCHES_OF_A_SURVIVOR = 3
_BATCH = re.compile(r"(?:Decode|Prefill) batch")
_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d)[ -](\d\d:\d\d:\d\d)")
_EXCEPTION = re.compile(r"\b(\w+) hit an exception")
_ALLOCATOR_FRAME = re.compile(r"in (alloc_decode|alloc_extend)$")
_TRACEBACK_LINES = 60
# What is told of a crash stands at the start of a line; what follows may be a dump of tensors, or of a whole prompt.
_LINE_LENGTH = 2000
_KERNEL = re.compile(r"fault kernel_name=([^\s,]+)")
_KINDS_WITH_KERNEL = frozenset({CrashKind.OOB_INDEX, CrashKind.AICORE_ERROR, CrashKind.AICORE_TIMEOUT})
_ABSURD_GIB = 100_000.0
# SGLang ends its own processes with SIGKILL once one of them has failed, so their signals tell nothing.
_SHUTDOWN = re.compile(r"SIGQUIT received|Received sigquit from a child process|kill_process_tree called")
_CHILD = re.compile(r"Subprocess \S+ \(pid=\d+\) crashed with exit code (-?\d+)")
_SHELL_SIGNAL_BASE = 128

_KIND_OF_SIGNAL: dict[int, CrashKind] = {
    signal.SIGKILL: CrashKind.KILLED,
    signal.SIGTERM: CrashKind.KILLED,
    signal.SIGINT: CrashKind.KILLED,
    signal.SIGABRT: CrashKind.ABORTED,
    signal.SIGSEGV: CrashKind.SEGFAULT,
    signal.SIGBUS: CrashKind.BUS_ERROR,
}


@dataclass(frozen=True)
class Evidence:
    """What an engine left behind.

    Attributes:
        exit_code: of the process that died first; None when a signal ended it, or when it is not known.
        signal: that ended the process that died first; None when it exited, or when it is not known.
        hang: what the engine did not do for too long, when the controller gave up on it; empty when it did not.
        oom_kills: processes that the kernel killed for lack of memory, on this machine, while the engine ran.
        log: the tail of the engine's log; other logs may follow, lines with a timestamp are put in order.
        recorder_error: `FlightReader.error()`: what came out of the allocator.
        last_outcome: what became of the last recorded decode step.
        at: when it happened, UTC.
    """

    exit_code: int | None = None
    signal: int | None = None
    hang: str = ""
    oom_kills: int = 0
    log: str = ""
    recorder_error: str = ""
    last_outcome: AllocationOutcome | None = None
    at: datetime = field(default_factory=lambda: datetime.now(timezone.utc))


class _Cause(NamedTuple):
    kind: CrashKind
    reason: str
    line: str = ""


@dataclass(frozen=True)
class _Match:
    at: str  # timestamp, "" before the first one
    number: int  # line number
    signature: Signature
    match: re.Match[str]

    @property
    def rank(self) -> tuple[Weight, str, int]:
        return self.signature.weight, self.at, self.number


def classify(evidence: Evidence) -> Crash:
    """Say of which kind a crash is, and why; see the module's rules. What else a run knows of it is added later."""
    return Crash(**_cause(evidence)._asdict(), at=evidence.at)


def _cause(evidence: Evidence) -> _Cause:
    lines = [line[:_LINE_LENGTH] for line in evidence.log.splitlines()]
    logged = _foremost(_findings(lines))
    if logged is not None and logged.signature.weight is Weight.CAUSE:
        return _from_finding(logged, call=_allocator_call(lines[: logged.number]), kernel=_kernel(lines))
    recorded = _foremost(_findings([evidence.recorder_error[:_LINE_LENGTH]]))
    if recorded is not None and recorded.signature.weight is Weight.CAUSE:
        return _from_finding(recorded, call=_recorded_call(evidence))
    if evidence.hang:
        return _Cause(CrashKind.HANG, evidence.hang)
    if logged is not None and logged.signature.weight is Weight.SYMPTOM:
        return _from_finding(logged)
    return (
        _from_exception(lines)
        or _from_recorded_exception(evidence)
        or (_from_finding(logged) if logged is not None else None)
        or _from_end(evidence, lines)
    )


def _findings(lines: list[str]) -> list[_Match]:
    batches_left = sum(1 for line in lines if _BATCH.search(line))
    at = ""
    findings = []
    for number, line in enumerate(lines):
        stamp = _TIMESTAMP.search(line)
        at = " ".join(stamp.groups()) if stamp else at
        batches_left -= bool(_BATCH.search(line))
        if batches_left >= _BATCHES_OF_A_SURVIVOR or NOT_A_CRASH.search(line):
            continue
        matches = [(row, match) for row in SIGNATURES if (match := row.pattern.search(line))]
        if matches:
            row, match = min(matches, key=lambda pair: pair[0].weight)
            findings.append(_Match(at, number, row, match))
    return findings


def _foremost(findings: list[_Match]) -> _Match | None:
    """The finding that says most; of those the earliest."""
    first = min(findings, key=lambda finding: finding.rank, default=None)
    if first is None or first.signature.kind is not CrashKind.AICORE_ERROR:
        return first
    indexes = [finding for finding in findings if finding.signature.kind is CrashKind.OOB_INDEX]
    return min(indexes, key=lambda finding: finding.rank, default=first)


def _allocator_call(lines: list[str]) -> str | None:
    """The allocator's method in the traceback at the end of these lines, if there is one."""
    frames = (match for line in reversed(lines[-_TRACEBACK_LINES:]) if (match := _ALLOCATOR_FRAME.search(line)))
    return next((match[1] for match in frames), None)


def _recorded_call(evidence: Evidence) -> str:
    return "alloc_decode" if evidence.last_outcome is AllocationOutcome.RAISED else "alloc_extend"


def _kernel(lines: list[str]) -> str | None:
    """The kernel at fault, as CANN names it. The operator in the Python stack may be innocent."""
    return next((match[1] for line in lines if (match := _KERNEL.search(line))), None)


def _from_finding(finding: _Match, *, call: str | None = None, kernel: str | None = None) -> _Cause:
    signature, groups = finding.signature, finding.match.groupdict()
    reason = signature.meaning
    if "index" in groups:
        past_end = ", one past the end" if groups["index"] == groups["bound"] else ""
        reason += f": index {groups['index']} of {groups['bound']}{past_end}"
    if float(groups.get("gib") or 0) > _ABSURD_GIB:
        reason += "; the amount asked for is absurd, which points at corrupted metadata"
    if call is not None:
        reason += f", in {call}"
    if kernel is not None and signature.kind in _KINDS_WITH_KERNEL:
        reason += f", kernel {kernel}"
    return _Cause(signature.kind, reason, finding.match.string.strip())


def _from_exception(lines: list[str]) -> _Cause | None:
    """The exception that one of SGLang's processes reported before it ended."""
    found = next(((number, match) for number, line in enumerate(lines) if (match := _EXCEPTION.search(line))), None)
    if found is None:
        return None
    start, who = found[0], found[1][1]
    kind = CrashKind.SCHEDULER_EXCEPTION if who == "Scheduler" else CrashKind.UNKNOWN
    line = lines[start]
    for above, below in zip(lines[start:], lines[start + 1 :], strict=False):
        if _TIMESTAMP.search(below):
            break
        # The exception stands right below the last, indented, line of its traceback.
        if above[:1].isspace() and below and not below[0].isspace():
            line = below
    return _Cause(kind, f"{who} ended with an exception: {line.strip()}", line.strip())


def _from_recorded_exception(evidence: Evidence) -> _Cause | None:
    if not evidence.recorder_error:
        return None
    reason = f"{_recorded_call(evidence)} raised {evidence.recorder_error}"
    return _Cause(CrashKind.SCHEDULER_EXCEPTION, reason, evidence.recorder_error)


def _from_end(evidence: Evidence, lines: list[str]) -> _Cause:
    """By how the process that died first ended, which says the least."""
    returncode, line = _returncode(evidence, lines)
    if returncode == -signal.SIGKILL and evidence.oom_kills > 0:
        reason = f"SIGKILL, while the kernel killed {evidence.oom_kills} process(es) for lack of memory"
        return _Cause(CrashKind.HOST_OOM, reason, line)
    if returncode is not None and returncode < 0:
        kind = _KIND_OF_SIGNAL.get(-returncode, CrashKind.UNKNOWN)
        return _Cause(kind, f"ended by {signal_name(-returncode)}", line)
    if evidence.last_outcome is AllocationOutcome.SHORT:
        return _Cause(CrashKind.ALLOCATOR_EXHAUSTED, "the last decode step got no pages", line)
    how = f"exited with code {returncode}" if returncode is not None else "it is gone"
    return _Cause(CrashKind.UNKNOWN, f"{how}, and nothing in the log says why", line)


def _returncode(evidence: Evidence, lines: list[str]) -> tuple[int | None, str]:
    """How the process that died first ended (negative for a signal), and the log line that says so, if one does."""
    returncode, line = evidence.exit_code if evidence.signal is None else -evidence.signal, ""
    if returncode in (None, -signal.SIGKILL):
        child = next((match for line in lines if (match := _CHILD.search(line))), None)
        if child is not None:
            returncode, line = int(child[1]), child.string.strip()
        elif any(_SHUTDOWN.search(line) for line in lines):
            returncode = None
    if returncode is not None and returncode > _SHELL_SIGNAL_BASE:
        returncode = _SHELL_SIGNAL_BASE - returncode
    return returncode, line
