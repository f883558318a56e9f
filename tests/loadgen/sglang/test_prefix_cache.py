"""The model of the radix cache: it does what real servers did, and never gives up what a running request holds."""

from __future__ import annotations

import json
from itertools import chain, repeat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.requests.planned_request import PlannedRequest
from loadgen.sglang.pages import Pool
from loadgen.sglang.releases import rules_for
from loadgen.sglang.rules import Rules
from loadgen.sglang.scheduler import NotServable, Scheduler
from loadgen.sglang.shape import Segment, Shape
from loadgen.sglang.steps import ModelStep
from loadgen.volleys.volley_forecast import after_volley

from ..releases import DIFFERENT

# Made from plan.jsonl and flight.bin of runs of `prefix`. Lists are run-length coded: [how often, what].
# Of a request: prompt tokens, max_new_tokens.
# Of a decode step: batch rows, need, free, trailing, prefill_batches, retractions, evicted_pages, cached.
RECORDINGS = sorted((Path(__file__).parent / "recordings" / "prefix_cache").glob("*.json"))


def expanded(coded: list[list[int]]) -> list[tuple[int, ...]]:
    return list(chain.from_iterable(repeat(tuple(what), times) for times, *what in coded))


def fields(step: ModelStep) -> tuple[int, ...]:
    return (
        step.batch_size,
        step.need,
        step.free,
        step.trailing,
        step.prefill_batches,
        step.retractions,
        step.evicted_pages,
        step.cached,
    )


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_model_makes_the_very_steps_that_a_real_server_made(path: Path) -> None:
    recording = json.loads(path.read_text())
    server = Scheduler(
        Pool(recording["page_size"], recording["pool_pages"]),
        overlap=recording["overlap"],
        rules=rules_for(recording["release"]).rules,
        chunked_prefill_size=recording["chunked_prefill_size"],
        prefix_cache=True,
    )
    for number, volley in enumerate(recording["volleys"]):
        after = after_volley(server, [PlannedRequest(Shape(*request)) for request in expanded(volley["requests"])])
        assert after is not None
        made, recorded = [fields(step) for step in after.steps], expanded(volley["steps"])
        if number == 0:
            # It floods the cache, whose contents were not recorded.
            made, recorded = [step[:6] for step in made], [step[:6] for step in recorded]
        assert made == recorded, number
        server = after


def served(server: Scheduler, *shapes: Shape) -> Scheduler:
    for shape in shapes:
        server.submit(shape)
    while not server.idle:
        server.iterate()
        server.check()
    return server


def cached(server: Scheduler) -> list[int]:
    """Pages of each node, the least recently used first."""
    assert server.cache is not None
    return [len(node.pages) for node in sorted(server.cache.nodes, key=lambda node: node.accessed)]


def test_full_pages_stay_when_a_request_ends_those_of_the_prompt_apart() -> None:
    server = served(Scheduler(Pool(16, 20), prefix_cache=True), Shape(40, 30))
    assert server.cache is not None
    assert sorted(cached(server)) == [2, 2]  # 69 tokens have KV: two pages of prompt, two of answer, and 5 tokens
    assert (server.pool.free_pages, server.cache.evictable_pages) == (16, 4)


def test_what_was_used_least_recently_is_evicted_first_the_end_of_a_chain_before_its_beginning() -> None:
    server = Scheduler(Pool(16, 16), prefix_cache=True)
    served(server, Shape(48, 18))  # three pages of prompt and one of answer
    served(server, Shape(80, 2))
    assert (server.pool.free_pages, sorted(cached(server))) == (7, [1, 3, 5])
    served(server, Shape(7 * 16 - 5, 2))  # a page more than are free is asked for: the answer of the first goes
    assert server.cache is not None
    assert (server.cache.evicted_pages, sorted(cached(server))) == (1, [3, 5, 6])


def test_a_step_evicts_a_page_for_every_row_though_it_needs_fewer() -> None:
    server = Scheduler(Pool(16, 24), prefix_cache=True)
    for _ in range(20):
        served(server, Shape(16, 2))
    first = len(server.steps)
    served(server, Shape(31, 4), Shape(16, 4), Shape(1, 4))
    steps = server.steps[first:]
    assert [(step.need, step.free, step.evicted_pages) for step in steps] == [(1, 3, 3), (1, 3, 1), (0, 3, 1)]


def test_a_retracted_request_finds_its_prompt_again() -> None:
    server = Scheduler(Pool(16, 12), prefix_cache=True)
    # Two rows that grow until one has to go; its prompt's pages stay while nobody needs them.
    served(server, Shape(64, 70), Shape(64, 40), Shape(1, 20))
    assert server.retractions > 0
    assert all(request.output == request.shape.max_new_tokens for request in server.ended)


def test_a_fork_leaves_the_server_alone() -> None:
    server = served(Scheduler(Pool(16, 20), prefix_cache=True), Shape(40, 30), Shape(64, 9))
    before = (server.pool.free_pages, cached(server), len(server.steps))
    fork = served(server.fork(), Shape(200, 20), Shape(90, 20))
    fork.check()
    assert (server.pool.free_pages, cached(server), len(server.steps)) == before
    server.check()


def test_rows_of_one_prompt_hold_its_full_pages_once_when_their_prefill_is_done() -> None:
    server = Scheduler(Pool(16, 32), overlap=False, prefix_cache=True)
    for _ in range(5):
        server.submit(Shape(16, 3), Segment(7, 16))
    while not server.idle:
        server.iterate()
        server.check()
    assert [(step.batch_size, step.need, step.free) for step in server.steps[:2]] == [(5, 5, 31), (5, 0, 26)]


REQUESTS = st.lists(
    st.tuples(st.integers(1, 60), st.integers(2, 40), st.integers(0, 2), st.integers(0, 60)), min_size=1, max_size=25
)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 16), st.integers(12, 60), st.booleans(), st.sampled_from(DIFFERENT), REQUESTS)
def test_no_page_is_lost_or_held_twice_whatever_prompts_share(
    page_size: int, pages: int, overlap: bool, rules: Rules, requests: list[tuple[int, int, int, int]]
) -> None:
    server = Scheduler(
        Pool(page_size, pages),
        overlap=overlap,
        rules=rules,
        chunked_prefill_size=4 * page_size,
        prefix_cache=True,
    )
    taken = 0
    for prompt, answer, key, shared in requests:
        try:
            server.submit(Shape(prompt, answer), Segment(key, min(prompt, shared)))
        except NotServable:
            continue
        taken += 1
        server.iterate()
        server.check()
    for _ in range(20_000):
        if server.idle:
            break
        server.iterate()
        server.check()
    assert server.cache is not None and server.idle
    assert server.pool.free_pages + server.cache.evictable_pages == pages
    assert len(server.ended) == taken
