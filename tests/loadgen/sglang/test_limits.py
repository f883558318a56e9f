"""What admission takes in, against the model of it that replays recordings."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loadgen.sglang.launch_arguments import over_committing
from loadgen.sglang.limits import (
    longest_accepted_prompt,
    longest_admitted_prompt,
    longest_answer,
    longest_answered_prompt,
)
from loadgen.sglang.pages import Pool
from loadgen.sglang.releases import NEWEST
from loadgen.sglang.scheduler import NotServable, PagePool, Request, check_servable
from loadgen.sglang.scheduler.prefill_adder import AdmissionResult, PrefillAdder
from loadgen.sglang.shape import Shape

POOLS = st.builds(Pool, st.integers(8, 256), st.integers(3, 300))


def servable(prompt: int, answer: int, pool: Pool) -> bool:
    try:
        check_servable(Shape(prompt, answer), pool)
    except NotServable:
        return False
    return True


@given(POOLS, st.data())
def test_an_answer_as_long_as_can_be_is_served_and_not_one_token_more(pool: Pool, data: st.DataObject) -> None:
    prompt = data.draw(st.integers(1, longest_answered_prompt(pool)))
    longest = longest_answer(prompt, pool)
    assert servable(prompt, longest, pool)
    assert not servable(prompt, longest + 1, pool)
    assert longest_answer(longest_answered_prompt(pool) + 1, pool) < 1


@given(POOLS)
def test_the_longest_admitted_prompt_is_admitted_by_an_empty_pool_and_the_next_is_not(pool: Pool) -> None:
    def admitted(prompt: int) -> bool:
        adder = PrefillAdder(PagePool(pool), 1 << 40, NEWEST)
        adder.add(Request(Shape(prompt, 1)))
        return bool(adder.admitted)

    longest = longest_admitted_prompt(pool)
    assert admitted(longest)
    assert longest < longest_accepted_prompt(pool)
    assert not admitted((pool.pages - 1) * pool.page_size)


def test_a_launch_keeps_nothing_back_and_prefills_whole_pages() -> None:
    needs = over_committing(4, Pool(128, 32))
    assert "--disable-radix-cache" in needs.arguments
    assert needs.arguments[-2:] == ("--chunked-prefill-size", "512")
    assert needs.environment == {"SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION": "0"}
    assert "--disable-radix-cache" not in over_committing(4, Pool(128, 32), prefix_cache=True).arguments


def test_a_full_pool_admits_nobody() -> None:
    pool = PagePool(Pool(16, 4))
    pool.take(4)
    assert PrefillAdder(pool, 64, NEWEST).result() is AdmissionResult.NO_TOKEN
