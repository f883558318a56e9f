"""Claims about an answer's parts: a healthy one never contradicts itself, and a broken one always does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.http.agreement import StreamedIds, contradiction

IDS = st.lists(st.integers(0, 255), max_size=12)


def told(parts: list[list[int]], *, incremental: bool) -> list[dict[str, Any]]:
    """The events of a stream whose tokens come in these parts."""
    so_far = [[token for part in parts[: place + 1] for token in part] for place in range(len(parts))]
    return [{"output_ids": ids} for ids in (parts if incremental else so_far)]


@pytest.mark.parametrize("incremental", [False, True])
@given(parts=st.lists(IDS, max_size=6))
def test_a_stream_is_put_together_whichever_way_it_is_told(incremental: bool, parts: list[list[int]]) -> None:
    stream = StreamedIds(incremental)
    for event in told(parts, incremental=incremental):
        stream.seen(event)
    assert stream.ids == [token for part in parts for token in part]
    assert not stream.contradiction


@given(ids=IDS.filter(len), data=st.data())
def test_a_stream_that_takes_a_token_back_contradicts_itself(ids: list[int], data: st.DataObject) -> None:
    changed = list(ids)
    changed[data.draw(st.integers(0, len(ids) - 1))] += 1
    stream = StreamedIds()
    for event in ({"output_ids": ids}, {"output_ids": changed}, {"output_ids": [*changed, 1]}):
        stream.seen(event)
    assert f"the {len(ids)} that it had told before" in stream.contradiction


@given(ids=IDS.filter(len))
def test_a_stream_that_loses_tokens_contradicts_itself(ids: list[int]) -> None:
    stream = StreamedIds()
    stream.seen({"output_ids": ids})
    stream.seen({"output_ids": ids[:-1]})
    assert stream.contradiction


@pytest.mark.parametrize("event", [None, 7, [], {}, {"output_ids": None}, {"output_ids": "text"}], ids=str)
def test_an_event_that_tells_no_ids_is_passed_over(event: Any) -> None:
    stream = StreamedIds()
    stream.seen(event)
    assert (stream.ids, stream.contradiction) == ([], "")


@pytest.mark.parametrize(
    ("ids", "counted", "finish", "asked", "said"),
    [
        ([1, 2, 3], 3, {"type": "length", "length": 3}, 3, ""),
        ([1, 2], 2, {"type": "stop", "matched": 2}, 3, ""),
        ([1], 0, {"type": "abort"}, 3, ""),
        (None, 3, {"type": "length", "length": 3}, 3, ""),
        ([1, 2], 3, {"type": "length", "length": 3}, 3, "2 token ids, and a token count of 3"),
        ([1, 2, 3], 3, {"type": "length", "length": 2}, 3, "a finish reason of length 2, and a token count of 3"),
        ([1, 2, 3], 3, {"type": "stop"}, 2, "3 new tokens, 2 were asked for"),
    ],
)
def test_ids_count_and_finish_reason_have_to_agree(
    ids: list[int] | None, counted: int, finish: dict[str, Any], asked: int, said: str
) -> None:
    assert contradiction(ids, counted, finish, asked) == said


@given(first=IDS, second=IDS)
def test_ids_that_go_on_as_they_stood_are_taken_in_by_their_bytes_and_no_others(
    first: list[int], second: list[int]
) -> None:
    """12 does not go on from 1."""
    stream = StreamedIds()
    stream.seen({"output_ids": first})
    event = json.dumps({"output_ids": second}, separators=(",", ":")).encode()
    goes_on = stream.goes_on(event, event.index(b"[") + 1) == event.index(b"]")
    assert goes_on is (second[: len(first)] == first)
    assert (stream.ids, stream.contradiction) == (second if goes_on else first, "")
    assert stream.count == len(stream.ids)


@pytest.mark.parametrize("known", [[], [1, 2]], ids=str)
@pytest.mark.parametrize(
    "text", ["1, 2]", '"1"]', "[1]]", "null]", "1,2,null]", "1.5]", "-1]", "1,2,]", "1,2", "1,,2]"]
)
def test_what_does_not_stand_there_as_plain_ids_is_not_taken_in(known: list[int], text: str) -> None:
    stream = StreamedIds()
    stream.seen({"output_ids": known})
    assert not stream.goes_on(text.encode(), 0)
    assert (stream.ids, stream.contradiction) == (known, "")
