"""Claims about streams: however they are cut up, and though most events are not read whole, the same is found."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.http.stream import StreamReader, TokenTimes, new_tokens_of, read_json

from ..fake_sglang import completion

COUNTS = st.lists(st.integers(1, 5), min_size=1, max_size=8)
# What a model may say: also what looks like the keys that are looked for.
TEXTS = st.text() | st.sampled_from(
    ['"completion_tokens":99,', '\\"completion_tokens":7}', '"error"', "data: [DONE]\n\n"]
)


def event(data: Any, *, compact: bool = True) -> bytes:
    text = json.dumps(data, separators=(",", ":")) if compact else json.dumps(data)
    return f"data: {text}\n\n".encode()


def parts_of(stream: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    return [stream[start:end] for start, end in itertools.pairwise(places)]


@given(COUNTS, TEXTS, st.booleans(), st.lists(st.integers(0, 10_000), max_size=12))
def test_tokens_are_counted_the_same_however_the_stream_is_cut(
    counts: list[int], text: str, compact: bool, cuts: list[int]
) -> None:
    totals = [sum(counts[: place + 1]) for place in range(len(counts))]
    events = [{"text": text, **completion(total)} for total in totals]
    stream = b"".join(event(each, compact=compact) for each in events) + b"data: [DONE]\n\n"
    reader = StreamReader(began=0.0, clock=lambda: 1.0)
    assert not any(reader.take(part) for part in parts_of(stream, cuts))
    assert (reader.ended, reader.error, reader.last) == (True, None, events[-1])
    assert reader.tokens.count == totals[-1] == new_tokens_of(events[-1])
    assert len(reader.tokens.gaps) == totals[-1] - totals[0]


@given(st.integers(1, 30), st.integers(1, 40))
def test_enough_is_known_at_the_very_event_that_brings_it(enough: int, all_tokens: int) -> None:
    reader = StreamReader(began=0.0, enough_tokens=enough)
    said = [reader.take(event(completion(count, finish={}))) for count in range(1, all_tokens + 1)]
    assert said[:enough] == [count == enough for count in range(1, min(enough, all_tokens) + 1)]
    assert reader.enough is (all_tokens >= enough)


@pytest.mark.parametrize("broken", [b"{", b"}", b'{"meta_info":{"completion_tokens":}}', b'{"meta_info":}', b"text"])
def test_an_event_that_is_no_json_is_told(broken: bytes) -> None:
    with pytest.raises(ValueError):
        StreamReader(began=0.0).take(b"data: " + broken + b"\n\n")


def test_a_last_event_that_only_looks_like_json_is_told() -> None:
    reader = StreamReader(began=0.0)
    assert not reader.take(b'data: {,"output_ids":[1],"completion_tokens":4,}\n\n')
    with pytest.raises(ValueError):
        reader.take(b"data: [DONE]\n\n")
    assert not reader.ended


def test_an_error_is_found_among_events_and_ends_the_reading() -> None:
    reader = StreamReader(began=0.0)
    error = {"error": {"message": 'of "completion_tokens":3,'}}
    assert reader.take(event(completion(1)) + event(error) + event(completion(2)))
    assert reader.error == error


def test_what_is_no_event_is_passed_over() -> None:
    reader = StreamReader(began=0.0)
    reader.take(
        b": a comment\r\nevent: token\r\n" + event(completion(2)).replace(b"\n", b"\r\n") + b"data: [DONE]\r\n\r\n"
    )
    assert reader.ended and reader.tokens.count == 2


def test_tokens_that_came_together_share_the_time_since_those_before() -> None:
    tokens = TokenTimes(began=10.0)
    for count, at in ((1, 11.0), (2, 11.5), (2, 12.0), (4, 12.5)):
        tokens.seen(count, at)
    assert (tokens.first_seconds, tokens.gaps, tokens.count) == (1.0, [0.5, 0.5, 0.5], 4)


def test_what_is_nested_too_deeply_to_be_read_is_no_json() -> None:
    deep = b"[" * 100_000
    with pytest.raises(ValueError, match="too deeply"):
        read_json(deep)
    with pytest.raises(ValueError, match="too deeply"):
        StreamReader(0.0).take(b"data: " + deep + b"\n\n")
