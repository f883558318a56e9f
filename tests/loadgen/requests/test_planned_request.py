"""Claims about planned requests: what a prompt is made of, and that nothing else changes it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loadgen.requests.planned_request import PlannedRequest
from loadgen.requests.prompts import PromptMaker
from loadgen.sglang.shape import Segment, Shape

MAKER = PromptMaker(7, range(100, 356))
SEGMENTS = st.lists(st.builds(Segment, st.integers(0, 5), st.integers(0, 9)), max_size=3).map(tuple)


@given(SEGMENTS, st.integers(1, 20), st.integers(0, 99))
def test_a_prompt_is_as_long_as_planned_and_begins_with_what_it_shares(
    shared: tuple[Segment, ...], own: int, number: int
) -> None:
    length = sum(segment.tokens for segment in shared) + own
    prompt = MAKER.prompt(number, PlannedRequest(Shape(length, 2), shared))
    assert len(prompt) == length
    assert set(prompt) <= set(range(100, 356))
    other = MAKER.prompt(number + 1, PlannedRequest(Shape(length, 9), shared))
    assert prompt[: length - own] == other[: length - own]


def test_the_seed_and_the_number_make_a_prompt_whatever_was_made_before() -> None:
    request = PlannedRequest(Shape(20, 2), (Segment(1, 10),))
    again = PromptMaker(7, range(100, 356))
    again.prompt(1, request)
    assert MAKER.prompt(5, request) == again.prompt(5, request)
    assert MAKER.prompt(5, request)[10:] != MAKER.prompt(6, request)[10:]
    assert MAKER.prompt(5, request)[:10] != PromptMaker(8, range(100, 356)).prompt(5, request)[:10]


@given(st.integers(0, 9), st.integers(0, 600), st.integers(0, 600))
def test_of_two_segments_with_a_key_the_shorter_is_the_beginning_of_the_longer(key: int, one: int, other: int) -> None:
    short, long = sorted((one, other))
    prompts = [MAKER.prompt(1, PlannedRequest(Shape(tokens, 2), (Segment(key, tokens),))) for tokens in (short, long)]
    assert prompts[1][:short] == prompts[0]
