"""Claims about scored answers: read as SGLang writes them, and refused when they are anything else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.http.logprobs import Scored, first_difference, read_scored

ANSWER = {
    "output_ids": [4, 9],
    "meta_info": {
        "output_token_logprobs": [[-0.1, 4, None], [-0.7, 9, None]],
        "output_top_logprobs": [
            [[-0.1, 4, None], [-2.5, 8, None]],
            [[-0.69, 3, None], [-0.7, 9, None], [-0.71, 7, None]],
        ],
    },
}


def test_an_answer_tells_how_sure_the_model_was() -> None:
    scored = read_scored(ANSWER)
    assert scored == Scored((4, 9), (-0.1, -0.7), ({8: -2.5}, {3: -0.69, 7: -0.71}))
    assert scored.lead(0, 8) == pytest.approx(2.4)
    assert scored.lead(1, 3) == pytest.approx(0.01)
    assert scored.lead(1, 7) == pytest.approx(0.01)
    assert scored.lead(0, 5) is None


@pytest.mark.parametrize(
    "answer",
    [
        None,
        7,
        {},
        {"output_ids": [4]},
        ANSWER | {"output_ids": [4]},
        ANSWER | {"meta_info": {"output_token_logprobs": None, "output_top_logprobs": None}},
        ANSWER | {"meta_info": {"output_token_logprobs": [[]], "output_top_logprobs": ["ab", "cd"]}},
    ],
    ids=str,
)
def test_anything_else_is_refused(answer: Any) -> None:
    with pytest.raises(ValueError):
        read_scored(answer)


@given(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)))
def test_answers_differ_where_one_is_no_prefix_of_the_other(one: list[int], other: list[int]) -> None:
    place = first_difference(one, other)
    shorter = min(len(one), len(other))
    if place is None:
        assert one[:shorter] == other[:shorter]
    else:
        assert one[:place] == other[:place] and one[place] != other[place]
