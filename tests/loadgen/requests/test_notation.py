"""Claims about requests in a line of text: they are read back as they were, and what is no request is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.requests.notation import NotRequests, read_requests, write_requests
from loadgen.requests.planned_request import PlannedRequest
from loadgen.sglang.shape import Segment, Shape


@st.composite
def requests(draw: st.DrawFn) -> PlannedRequest:
    """Any request that a scenario may plan, with its number."""
    shared = tuple(draw(st.lists(st.builds(Segment, st.integers(-(2**63), 2**63), st.integers(1, 99)), max_size=3)))
    own = draw(st.integers(0 if shared else 1, 99_999))
    return PlannedRequest(
        Shape(sum(segment.tokens for segment in shared) + own, draw(st.integers(0, 99_999))),
        shared,
        hang_up_tokens=draw(st.none() | st.integers(1, 999)),
        hang_up_seconds=draw(st.none() | st.integers(0, 10**9).map(lambda us: us / 1e6)),
        number=draw(st.integers(1, 10**9)),
    )


@given(st.lists(requests(), min_size=1, max_size=8), st.integers(1, 99))
def test_written_requests_are_read_back_as_they_were(planned: list[PlannedRequest], expected: int) -> None:
    text = write_requests([(request.number or 0, request) for request in planned], expected)
    assert list(read_requests(text, expected)) == planned


def test_the_notation_is_short_and_numbers_follow_from_the_first() -> None:
    planned = read_requests("101+30 7:102+31 103+32")
    assert [request.number for request in planned] == [1, 7, 8]
    assert write_requests([(request.number or 0, request) for request in planned]) == "101+30 7:102+31 103+32"
    assert read_requests("17:300+40&7x128&-8x64!5~0.5") == (
        PlannedRequest(Shape(300, 40), (Segment(7, 128), Segment(-8, 64)), 5, 0.5, 17),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is no request"),
        ("101+30 102-31", "request 2, '102-31', is none; write PROMPT+ANSWER in tokens, as in 101+30"),
        ("101+30, 102+31", "request 1, '101+30,', is none"),
        ("0+30", "request 1, '0+30', has a length of 0; allowed: at least 1 token"),
        ("101+3!0", "has a length of 0"),
        ("101+3&1x0", "has a length of 0"),
        ("101+3 9+3&1x4&2x6", "request 2, '9+3&1x4&2x6', shares 10 tokens; allowed: at most the 9 of its prompt"),
        ("1" * 5000 + "+1", "request 1, '1111"),
        ("\u0661+\u0661", "is none"),
    ],
)
def test_what_is_no_request_is_told_by_its_place_with_what_is_allowed(text: str, said: str) -> None:
    with pytest.raises(NotRequests) as refused:
        read_requests(text)
    assert said in str(refused.value) and len(str(refused.value)) < 400
