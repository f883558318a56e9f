"""Page arithmetic against counting token by token."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.sglang.pages import Pool, crossing_once, crossings, pages_for
from loadgen.sglang.shape import Shape

PAGE_SIZES = st.integers(2, 256)


def count_crossings(shape: Shape, page_size: int) -> tuple[list[int], int]:
    """The request's own decode steps in which it opens a page, and the pages that it holds at its end."""
    pages = len({token // page_size for token in range(shape.prompt_tokens)})
    opened = []
    for step in range(1, shape.max_new_tokens):
        token = shape.prompt_tokens + step - 1  # counted from 0
        if token // page_size == pages:
            pages += 1
            opened.append(step)
    return opened, pages


@given(st.integers(0, 5000), PAGE_SIZES)
def test_pages_are_those_that_hold_at_least_one_token(tokens: int, page_size: int) -> None:
    assert pages_for(tokens, page_size) == len({token // page_size for token in range(tokens)})


@given(st.integers(1, 700), st.integers(1, 700), PAGE_SIZES)
def test_crossings_are_the_steps_whose_token_opens_a_page(prompt: int, answer: int, page_size: int) -> None:
    shape = Shape(prompt, answer)
    opened, pages = count_crossings(shape, page_size)
    assert list(crossings(shape, page_size)) == opened
    assert pages_for(shape.final_tokens, page_size) == pages


@given(st.data(), PAGE_SIZES, st.integers(1, 40))
def test_crossing_once_crosses_in_the_step_asked_for_and_ends_with_it(
    data: st.DataObject, page_size: int, pages: int
) -> None:
    at_step = data.draw(st.integers(1, page_size))
    shape = crossing_once(pages, at_step, page_size)
    assert count_crossings(shape, page_size) == ([at_step], pages + 1)
    assert pages_for(shape.prompt_tokens, page_size) == pages
    assert shape.decode_steps == at_step


@pytest.mark.parametrize(("pages", "at_step"), [(0, 1), (1, 0), (1, 17)])
def test_impossible_crossings_are_refused(pages: int, at_step: int) -> None:
    with pytest.raises(ValueError, match=f"pages={pages} must be at least 1, at_step={at_step} from 1 to page_size=16"):
        crossing_once(pages, at_step, page_size=16)


def test_a_pool_holds_whole_pages_of_tokens() -> None:
    assert Pool(page_size=128, pages=32).tokens == 4096
