"""Reading traces: every line is taken as it is written, and every bad one is named with its key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.scenarios.replay import SMALL_TRACE
from loadgen.traces.trace import BLOCK_TOKENS, Format, NotATrace, TracedRequest, parse_trace, read_trace

from ..conversations import records

TOKENS = st.integers(1, 200_000)


def lines(*records: Any) -> list[str]:
    return [json.dumps(record) for record in records]


def faults(text: list[str], form: Format = Format.AUTO) -> tuple[str, ...]:
    with pytest.raises(NotATrace) as caught:
        parse_trace(text, form)
    return caught.value.faults


@given(st.lists(st.tuples(st.integers(0, 10**9), TOKENS, TOKENS, st.lists(st.integers(-(2**64), 2**64))), min_size=1))
def test_a_mooncake_trace_is_read_in_the_order_of_its_times(rows: list[tuple[int, int, int, list[int]]]) -> None:
    keys = ("timestamp", "input_length", "output_length", "hash_ids")
    trace = parse_trace(lines(*(dict(zip(keys, row, strict=True)) for row in rows)))
    expected = sorted(enumerate(rows, 1), key=lambda row: row[1][0])
    first = expected[0][1][0]
    assert trace.timed and len(trace.requests) == len(rows)
    names: dict[int, int] = {}
    for request, (line, (at, prompt, answer, ids)) in zip(trace.requests, expected, strict=True):
        assert (request.line, request.seconds) == (line, (at - first) / 1000)
        assert (request.prompt_tokens, request.answer_tokens) == (prompt, answer)
        used = ids[: -(-prompt // BLOCK_TOKENS)]
        assert len(request.blocks) == len(used)
        # Blocks are equal just where the ids are.
        assert all(names.setdefault(block, id_) == id_ for block, id_ in zip(request.blocks, used, strict=True))
    assert len(set(names.values())) == len(names) == trace.blocks
    assert set(names) == set(range(trace.blocks))


def test_a_trace_of_lengths_may_have_either_names_and_times_or_none() -> None:
    untimed = parse_trace(
        lines({"prompt_tokens": 7, "max_new_tokens": 2}, {"input_length": 8, "output_length": 3, "x": 0})
    )
    assert untimed.requests == (TracedRequest(1, None, 7, 2), TracedRequest(2, None, 8, 3))
    assert not untimed.timed and untimed.blocks == 0
    timed = parse_trace(["", *lines({"prompt_tokens": 7, "max_new_tokens": 2, "timestamp": 1500.5}), "  "])
    assert timed.requests == (TracedRequest(2, 0.0, 7, 2),)


def test_the_first_line_tells_the_form_and_hash_ids_are_passed_over_in_a_trace_of_lengths() -> None:
    record = {"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [5, 6]}
    assert parse_trace(lines(record)).requests[0].blocks == (0, 1)
    assert parse_trace(lines(record), Format.LENGTHS).requests[0].blocks == ()
    assert faults(lines({"input_length": 600, "output_length": 1}), Format.MOONCAKE) == (
        "line 1: timestamp is missing",
    )


@pytest.mark.parametrize(
    ("record", "fault"),
    [
        ({"input_length": 5}, "output_length is missing"),
        ({"prompt_tokens": 5}, "max_new_tokens is missing"),
        ({}, "prompt_tokens is missing"),
        (
            {"prompt_tokens": 0, "max_new_tokens": 1},
            "prompt_tokens is 0; give a whole number of tokens, from 1 to 1,000,000,000",
        ),
        ({"prompt_tokens": 5, "max_new_tokens": 1.5}, "max_new_tokens is 1.5; give a whole"),
        ({"prompt_tokens": True, "max_new_tokens": 1}, "prompt_tokens is true; give a whole"),
        ({"prompt_tokens": "9" * 99, "max_new_tokens": 1}, 'prompt_tokens is "999'),
        ({"prompt_tokens": 5, "max_new_tokens": 1, "timestamp": -1}, "timestamp is -1; give milliseconds, from 0"),
        ({"prompt_tokens": 5, "max_new_tokens": 1, "timestamp": float("inf")}, "timestamp is Infinity"),
        ({"prompt_tokens": 5, "max_new_tokens": 1, "timestamp": 10**309}, "timestamp is 1000"),
        ({"prompt_tokens": 5, "max_new_tokens": int("9" * 4299)}, "max_new_tokens is 9999"),
        ({"prompt_tokens": 5, "max_new_tokens": 1, "timestamp": None}, "timestamp is null"),
        ({"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": 3}, "hash_ids is 3; give a list of whole"),
        ({"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": ["a"]}, 'hash_ids is ["a"]; give a list'),
        ([1, 2], "it is [1, 2]; a line is a JSON object"),
        (3, "it is 3; a line is a JSON object"),
    ],
)
def test_a_bad_line_is_named_with_its_key_its_value_and_what_is_allowed(record: Any, fault: str) -> None:
    (told,) = faults(lines(record))
    assert told.startswith(f"line 1: {fault}") and len(told) < 200


def test_text_that_is_no_trace_at_all_is_refused() -> None:
    assert faults(["not json"])[0].startswith("line 1: it is not JSON: ")
    assert faults(["[" * 100_000])[0].startswith("line 1: it is not JSON: ")
    assert faults([]) == faults(["\n"]) == ("it is empty; a trace has at least one request",)
    timed, untimed = (
        {"prompt_tokens": 5, "max_new_tokens": 1, "timestamp": 3},
        {"prompt_tokens": 5, "max_new_tokens": 1},
    )
    assert faults(lines(timed, untimed))[0].startswith("line 2: timestamp is missing, though other lines have one")


def test_every_bad_line_is_told_of_the_first_ten() -> None:
    told = faults(lines(*[{"prompt_tokens": 5, "max_new_tokens": 0}] * 30))
    assert [fault.partition(":")[0] for fault in told] == [f"line {number}" for number in range(1, 11)]


def test_a_trace_of_too_many_lines_is_refused_before_they_are_read(tmp_path: Path) -> None:
    told = "it has more than 200,000 lines, which is the most that is allowed"
    assert told in faults(["\n"] * 200_001)
    (tmp_path / "trace").write_text("not read\n" * 200_001)
    with pytest.raises(NotATrace) as caught:
        read_trace(tmp_path / "trace")
    assert caught.value.faults == (told,)


def test_a_file_that_is_too_large_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "trace").open("wb") as file:
        file.truncate(10**9)
    with pytest.raises(NotATrace, match="it has 1,000,000,000 bytes; allowed: at most"):
        read_trace(tmp_path / "trace")


def test_files_that_cannot_be_read_say_so(tmp_path: Path) -> None:
    def fault(path: Path) -> str:
        with pytest.raises(NotATrace) as caught:
            read_trace(path)
        return str(caught.value)

    assert fault(tmp_path / "none.jsonl") == "there is no such file"
    assert fault(tmp_path) == "it is not a file"
    assert fault(Path("/dev/zero")) == "it is not a file"
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    assert fault(tmp_path / "binary").startswith("it is not UTF-8 text")


def test_a_file_that_has_changed_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    file.write_text("\ufeff" + lines({"prompt_tokens": 5, "max_new_tokens": 1})[0])
    assert len(read_trace(file).requests) == 1
    file.write_text("\n".join(lines(*[{"prompt_tokens": 5, "max_new_tokens": 1}] * 2)))
    assert len(read_trace(file).requests) == 2


def test_the_small_trace_is_what_its_generator_makes_and_shares_prefixes() -> None:
    assert [json.loads(line) for line in SMALL_TRACE.read_text().splitlines()] == records()
    trace = read_trace(SMALL_TRACE)
    assert trace.timed and trace.blocks < sum(len(request.blocks) for request in trace.requests) / 2
