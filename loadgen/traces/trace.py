"""Traces: what a service was asked for, one request a line of JSON.

Two forms are read:

- `mooncake`, as published with Mooncake (https://github.com/kvcache-ai/Mooncake, `FAST25-release/traces`): `timestamp`
  in milliseconds, `input_length` and `output_length` in tokens, and `hash_ids`, one for each block of 512 tokens of the
  prompt, the last of which may be cut short. Prompts that begin with the same ids begin with the same tokens;
- `lengths`: `prompt_tokens` and `max_new_tokens`, or `input_length` and `output_length`; `timestamp` in milliseconds is
  optional, for all lines or none.

Other keys are passed over.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from ..errors import LoadError

BLOCK_TOKENS = 512
"""Tokens of a prompt that one hash id stands for."""

MOST_LINES = 200_000
"""Of a trace: more would take minutes to read, and most of the controller's memory."""

_TOO_MANY_LINES = f"it has more than {MOST_LINES:,} lines, which is the most that is allowed"
_MOST_BYTES = 256 * 2**20
_MOST_TOKENS = 10**9
_LATEST = 10**15
_FAULTS_TOLD = 10


class Format(str, Enum):
    """Forms of a trace; `auto`: `mooncake` if the first line has `hash_ids`, else `lengths`."""

    AUTO = "auto"
    MOONCAKE = "mooncake"
    LENGTHS = "lengths"


class NotATrace(LoadError):
    """A file that is no trace. Each of `faults` says where, and what is allowed."""

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(self.faults))


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """A request of a trace.

    Attributes:
        line: its line in the file, from 1.
        seconds: when it came, from the first one on; None when the trace does not tell.
        prompt_tokens: of the prompt.
        answer_tokens: of the answer.
        blocks: what each block of the prompt is, by numbers that count from 0 in the order in which the trace first
            names them. They may be fewer than the prompt has blocks, or none; never more.
    """

    line: int
    seconds: float | None
    prompt_tokens: int
    answer_tokens: int
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Trace:
    """A trace, in the order in which its requests came.

    Attributes:
        blocks: how many different blocks there are.
    """

    requests: tuple[TracedRequest, ...]
    blocks: int

    @property
    def timed(self) -> bool:
        return self.requests[0].seconds is not None


def read_trace(path: Path, form: Format = Format.AUTO) -> Trace:
    """The trace in a file. What was read last is kept as long as the file does not change.

    Raises:
        NotATrace: it cannot be read, or is none; with the first faults that were found.
    """
    try:
        if not path.is_file():
            raise NotATrace(["there is no such file" if not path.exists() else "it is not a file"])
        stat = path.stat()
        if stat.st_size > _MOST_BYTES:
            raise NotATrace([f"it has {stat.st_size:,} bytes; allowed: at most {_MOST_BYTES:,}"])
        return _read(path, form, stat.st_mtime_ns, stat.st_size)
    except OSError as error:
        raise NotATrace([f"cannot be read: {error.strerror or error}"]) from error


@functools.lru_cache(maxsize=2)
def _read(path: Path, form: Format, _changed_ns: int, _bytes: int) -> Trace:
    with path.open("rb") as file:
        # To count them is a hundred times as fast as to read them.
        if sum(part.count(b"\n") for part in iter(lambda: file.read(2**20), b"")) > MOST_LINES:
            raise NotATrace([_TOO_MANY_LINES])
    try:
        with path.open(encoding="utf-8-sig") as lines:
            return parse_trace(lines, form)
    except UnicodeDecodeError as error:
        raise NotATrace([f"it is not UTF-8 text: {error.reason}"]) from error


def parse_trace(lines: Iterable[str], form: Format = Format.AUTO) -> Trace:
    """The trace that these lines are; empty ones are passed over.

    Raises:
        NotATrace: with the first faults that were found.
    """
    faults: list[str] = []
    requests: list[tuple[float | None, TracedRequest]] = []
    numbers: dict[int, int] = {}
    for number, text in enumerate(lines, 1):
        if number > MOST_LINES:
            raise NotATrace([*faults, _TOO_MANY_LINES])
        if not text.strip():
            continue
        try:
            record = _record(text)
            if form is Format.AUTO:
                form = Format.MOONCAKE if "hash_ids" in record else Format.LENGTHS
            requests.append(_request(number, record, form, numbers))
        except _BadRecord as fault:
            faults.append(f"line {number}: {fault}")
        if len(faults) == _FAULTS_TOLD:
            break
    times = [at for at, _ in requests if at is not None]
    if times and len(times) < len(requests):
        line = next(request.line for at, request in requests if at is None)
        faults.append(f"line {line}: timestamp is missing, though other lines have one; give all of them one, or none")
    if not requests and not faults:
        faults.append("it is empty; a trace has at least one request")
    if faults:
        raise NotATrace(faults)
    return Trace(tuple(_in_order(requests, min(times, default=0.0))), len(numbers))


class _BadRecord(ValueError):
    """What is wrong with a line."""


def _record(text: str) -> Mapping[str, Any]:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _BadRecord(f"it is not JSON: {error}") from error
    if not isinstance(record, Mapping):
        raise _BadRecord(f"it is {_shown(record)}; a line is a JSON object")
    return record


def _request(
    line: int, record: Mapping[str, Any], form: Format, numbers: dict[int, int]
) -> tuple[float | None, TracedRequest]:
    """A request, and its time as the trace tells it, in milliseconds."""
    if form is Format.LENGTHS and "input_length" not in record:
        prompt, answer = _tokens(record, "prompt_tokens"), _tokens(record, "max_new_tokens")
    else:
        prompt, answer = _tokens(record, "input_length"), _tokens(record, "output_length")
    at = _time(record) if form is Format.MOONCAKE or "timestamp" in record else None
    blocks = _blocks(record, prompt, numbers) if form is Format.MOONCAKE else ()
    return at, TracedRequest(line, None, prompt, answer, blocks)


def _tokens(record: Mapping[str, Any], key: str) -> int:
    value = _value(record, key)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MOST_TOKENS:
        raise _BadRecord(f"{key} is {_shown(value)}; give a whole number of tokens, from 1 to {_MOST_TOKENS:,}")
    return value


def _time(record: Mapping[str, Any]) -> float:
    value = _value(record, "timestamp")
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= _LATEST:
        return float(value)
    raise _BadRecord(f"timestamp is {_shown(value)}; give milliseconds, from 0 to {_LATEST:,}")


def _blocks(record: Mapping[str, Any], prompt_tokens: int, numbers: dict[int, int]) -> tuple[int, ...]:
    value = _value(record, "hash_ids")
    if not isinstance(value, list) or not all(isinstance(item, int) and not isinstance(item, bool) for item in value):
        raise _BadRecord(f"hash_ids is {_shown(value)}; give a list of whole numbers")
    used = value[: -(-prompt_tokens // BLOCK_TOKENS)]
    return tuple(numbers.setdefault(item, len(numbers)) for item in used)


def _value(record: Mapping[str, Any], key: str) -> Any:
    try:
        return record[key]
    except KeyError:
        raise _BadRecord(f"{key} is missing") from None


def _in_order(requests: list[tuple[float | None, TracedRequest]], first: float) -> Iterable[TracedRequest]:
    for at, request in sorted(requests, key=lambda timed: timed[0] or 0.0):
        yield request if at is None else replace(request, seconds=(at - first) / 1000)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
