"""`extend`: prompts of every length up to the last that is prefilled, each of which leaves one page, and never none."""

from __future__ import annotations

import random
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from loadgen.requests.planned_request import PlannedRequest
from loadgen.scenarios.base import Observation
from loadgen.scenarios.extend import (
    MIN_PAGE_SIZE,
    MIN_POOL_PAGES,
    Extend,
    ExtendOptions,
    _between_chunks,
    _has_several_chunks,
    rounds,
)
from loadgen.sglang.limits import (
    longest_accepted_prompt,
    longest_admitted_prompt,
    longest_answer,
    longest_answered_prompt,
)
from loadgen.sglang.pages import Pool, crossings, pages_for
from loadgen.sglang.releases import NEWEST
from loadgen.sglang.scheduler import PagePool, Scheduler
from loadgen.sglang.server import ServerConfiguration

from ..modelled_load import ModelledLoad

POOL = Pool(128, 32)
POOLS = st.builds(Pool, st.integers(MIN_PAGE_SIZE, 200), st.integers(MIN_POOL_PAGES, 300))
OPTIONS = st.builds(
    ExtendOptions,
    prefill_pages=st.none() | st.integers(1, 40),
    beyond=st.booleans(),
    longest_prompt_tokens=st.integers(1, 9000),
    mixed_chunk=st.booleans(),
)


class WatchedPool(PagePool):
    """Remembers how many pages each prefill left free."""

    def __init__(self, size: Pool) -> None:
        super().__init__(size)
        self.left: list[int] = []

    def extend(self, prefix_tokens: int, tokens: int) -> list[int]:
        pages = super().extend(prefix_tokens, tokens)
        self.left.append(self.free_pages)
        return pages


def extending(pool: Pool, options: ExtendOptions, *, overlap: bool, seed: int = 1) -> tuple[ModelledLoad, WatchedPool]:
    """`extend` on the model, which serves whatever has an answer."""
    scenario = Extend(ServerConfiguration(pool, overlap), options, seed)
    every = rounds(pool, options, seed)
    scenario._rounds = (
        (first, then)
        for first, then in every
        if all(0 < r.shape.max_new_tokens <= longest_answer(r.shape.prompt_tokens, pool) for r in first + then)
    )
    arguments = Extend.engine_needs(pool, options).arguments
    chunk = int(arguments[arguments.index("--chunked-prefill-size") + 1])
    scheduler = Scheduler(pool, overlap=overlap, chunked_prefill_size=chunk)
    scheduler.pool = watched = WatchedPool(pool)
    return ModelledLoad(scenario, scheduler), watched


@settings(max_examples=30, deadline=None)
@given(POOLS, OPTIONS, st.booleans(), st.integers(0, 99))
def test_no_prefill_takes_the_last_page_whatever_the_load(
    pool: Pool, options: ExtendOptions, overlap: bool, seed: int
) -> None:
    """The docstring's claim that a prefill is never exactly tight without mixed chunks."""
    load, watched = extending(pool, options, overlap=overlap, seed=seed)
    load.run(200)
    assert len(watched.left) > 0 and min(watched.left) >= 1
    assert not any(request.aborted for request in load.scheduler.ended)


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("pages", [32, 256])
def test_prefills_leave_one_page_and_the_next_decode_step_takes_it(pages: int, overlap: bool) -> None:
    load, watched = extending(Pool(128, pages), ExtendOptions(beyond=False), overlap=overlap)
    steps = load.run(3000)
    after_prefill = [step for step in steps if step.prefill_batches]
    assert watched.left.count(1) > 300
    assert sum(step.critical for step in after_prefill) > 0.3 * len(after_prefill)
    # Prompts in several chunks are among them.
    assert sum(step.prefill_batches >= 3 and step.critical for step in steps) > 30


@given(POOLS, OPTIONS, st.integers(0, 99))
def test_every_prompt_is_one_that_the_server_takes_in(pool: Pool, options: ExtendOptions, seed: int) -> None:
    for first, then in islice(rounds(pool, options, seed), 130):
        for request in (*first, *then):
            prompt, answer = request.shape.prompt_tokens, request.shape.max_new_tokens
            assert 1 <= prompt <= longest_accepted_prompt(pool)
            assert prompt + answer <= Extend.longest_request(pool, options)
            if prompt > longest_admitted_prompt(pool):
                assert options.beyond and request.hang_up_seconds == options.hang_up_seconds
            else:
                assert not request.hangs_up
                assert answer <= max(0, longest_answer(prompt, pool))


def test_prompts_reach_from_one_token_to_the_last_that_the_pool_can_hold_and_beyond() -> None:
    sent: set[int] = set()
    for first, then in islice(rounds(POOL, ExtendOptions(), 1), 2000):
        sent |= {request.shape.prompt_tokens for request in first + then}
    assert {1, 2, 127, 128, 129} <= sent
    assert {longest_answered_prompt(POOL), longest_answered_prompt(POOL) + 1} <= sent
    assert {longest_admitted_prompt(POOL) - 1, longest_admitted_prompt(POOL), longest_admitted_prompt(POOL) + 1} <= sent
    assert max(sent) == longest_accepted_prompt(POOL)
    assert {pages_for(prompt, POOL.page_size) for prompt in sent} == set(range(1, POOL.pages + 1))


def test_prompts_beyond_the_end_are_few_and_can_be_left_out() -> None:
    def beyond(options: ExtendOptions) -> list[PlannedRequest]:
        some = islice(rounds(POOL, options, 1), 640)
        return [request for first, then in some for request in first + then if request.hangs_up]

    assert len(beyond(ExtendOptions())) == 10
    assert beyond(ExtendOptions(beyond=False)) == []


def test_on_a_large_pool_no_longer_prompt_is_prefilled_than_asked_for() -> None:
    options = ExtendOptions(longest_prompt_tokens=2048, beyond=False)
    large = islice(rounds(Pool(128, 256), options, 1), 500)
    sent = [request.shape.prompt_tokens for first, then in large for request in first + then]
    assert 1920 < max(sent) <= 2048
    assert Extend.longest_request(Pool(128, 256), options) <= 2048 + 128


def test_a_seed_gives_the_same_requests_whatever_is_seen_of_the_server() -> None:
    def sent(seed: int, seen: Observation) -> list[PlannedRequest]:
        scenario = Extend(ServerConfiguration(POOL), ExtendOptions(), seed)
        requests: list[PlannedRequest] = []
        while len(requests) < 500:
            requests += scenario.next_wave(Observation(0, (), 0)).requests
            requests += scenario.next_wave(seen).requests
        return requests[:500]

    assert sent(2, Observation(0, (), 0)) == sent(2, Observation(9, (), 3))
    assert sent(2, Observation(0, (), 0)) != sent(3, Observation(0, (), 0))


def test_mixed_chunks_are_launched_when_asked_for() -> None:
    plain, mixed = (Extend.engine_needs(POOL, ExtendOptions(mixed_chunk=mixed)) for mixed in (False, True))
    assert mixed.arguments == (*plain.arguments, "--enable-mixed-chunk")
    assert plain.arguments[-1] == "512"


@given(POOLS, st.builds(ExtendOptions, prefill_pages=st.none() | st.integers(1, 40), mixed_chunk=st.just(True)))
def test_with_mixed_chunks_a_holder_crosses_once_before_the_last_chunk_of_the_probe(
    pool: Pool, options: ExtendOptions
) -> None:
    """So the last chunk needs the pages that are free, and none is short."""
    if not _has_several_chunks(pool, options):
        return
    chunk = options.prefill_pages or pool.pages // 8
    for seed in range(20):
        holder, probe = (request.shape for request in _between_chunks(pool, options, random.Random(seed), NEWEST))
        held, probed = (pages_for(shape.prompt_tokens, pool.page_size) for shape in (holder, probe))
        assert held + 1 + probed == pool.pages and held % chunk == 0 and probed > chunk
        (crossing,) = crossings(holder, pool.page_size)
        assert crossing < pages_for(probed, chunk) < holder.decode_steps
        assert list(crossings(probe, pool.page_size)) == []


def test_pools_and_options_that_cannot_work_are_refused_by_field() -> None:
    size, pages = Extend.faults(Pool(MIN_PAGE_SIZE - 1, MIN_POOL_PAGES - 1), ExtendOptions())
    assert (size.field, size.value, pages.field, pages.value) == ("engine.page_size", 15, "engine.pool_pages", 7)
    for options in ({"prefill_pages": 0}, {"hang_up_seconds": 0.1}, {"beyond": "perhaps"}, {"chunk": 1}):
        with pytest.raises(ValidationError):
            ExtendOptions.model_validate(options)
