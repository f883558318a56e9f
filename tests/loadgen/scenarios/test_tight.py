"""`tight` against the model of SGLang's scheduler."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import assume, given, seed, settings
from hypothesis import strategies as st

from loadgen.scenarios.tight.scenario import (
    MIN_PAGE_SIZE,
    MIN_POOL_PAGES,
    Tight,
    TightOptions,
    choose_seats,
    fill_pages,
    longest_prompt_pages,
    most_at_once,
    most_needed,
    possible_leads,
    seat_pages,
)
from loadgen.sglang.pages import Pool, crossings
from loadgen.sglang.releases import RELEASES
from loadgen.sglang.server import ServerConfiguration
from loadgen.sglang.steps import ModelStep

from ..modelled_load import ModelledLoad, tight_load
from ..releases import NEW, OLD

POOLS = st.builds(
    Pool,
    page_size=st.one_of(st.integers(MIN_PAGE_SIZE, 40), st.integers(MIN_PAGE_SIZE, 256)),
    pages=st.one_of(st.integers(MIN_POOL_PAGES, 20), st.integers(MIN_POOL_PAGES, 600)),
)
# A page is so many decode steps, and with them the time until the load has settled.
SMALL_PAGES = st.builds(
    Pool,
    page_size=st.integers(MIN_PAGE_SIZE, 80),
    pages=st.one_of(st.integers(MIN_POOL_PAGES, 20), st.integers(20, 300)),
)
LARGER_POOLS = st.builds(Pool, st.integers(60, 256), st.integers(24, 300))
QUEUES = st.sampled_from([8, 16, 64, 200])


def critical(steps: list[ModelStep]) -> float:
    """Share of the steps that are critical."""
    return sum(step.critical for step in steps) / len(steps)


def steps_to_settle(pool: Pool) -> int:
    """Seating, two rounds at most, and all of it once more with a longer lead."""
    return 4 * pool.page_size + 40


@settings(max_examples=20)
@given(POOLS, st.booleans(), QUEUES, st.integers(1, 4), st.integers(0, 3))
def test_every_decode_step_takes_the_last_free_page_with_rows_behind_it(
    pool: Pool, overlap: bool, queue: int, poll: int, travel: int
) -> None:
    # What is sent must arrive twice within the lead, which is what a page leaves of itself.
    assume(pool.page_size >= 3 * (poll + travel) + 5)
    load = tight_load(pool, overlap=overlap, queue=queue, needs=(1,), orders=("oldest",), poll=poll, travel=travel)
    load.run(steps_to_settle(pool))
    assert all((step.need, step.free) == (1, 1) and step.critical for step in load.run(100))
    assert len(load.scenario.restarts) <= 1
    assert load.scheduler.retractions == 0
    longest = Tight.longest_request(pool, TightOptions())
    assert all(
        request.shape.prompt_tokens + request.shape.max_new_tokens <= longest <= pool.tokens for request in load.sent
    )
    for request in load.scheduler.ended:
        # It crosses once, in the step with which it ends, as its shape promises.
        assert request.crossings == list(crossings(request.shape, pool.page_size)) == [request.shape.decode_steps]


# To go from one need to the next takes more foresight than to stay: many steps must fit into a page, and the steps that
# a change takes must be few beside the 64 of a need.
# About one case in a hundred does not hold (`BROKEN_BY`), so the examples stay the same when names in here change.
@seed(1)
@settings(max_examples=20)
@given(LARGER_POOLS, st.booleans(), QUEUES, st.integers(1, 4), st.integers(0, 3), st.data())
def test_each_need_in_turn_takes_all_pages_that_are_free(
    pool: Pool, overlap: bool, queue: int, poll: int, travel: int, data: st.DataObject
) -> None:
    # What is sent at one look has to last until the next.
    most = min(8, most_needed(pool), most_at_once(pool) // poll)
    assume(most)
    needs = tuple(data.draw(st.lists(st.integers(1, most), min_size=1, max_size=4)))
    load = tight_load(pool, overlap=overlap, queue=queue, needs=needs, steps_per_need=64, poll=poll, travel=travel)
    load.run(steps_to_settle(pool))
    steps = load.run(64 * len(needs) + 64)
    # A pause at the end of each 64 steps, and a change of need after it, cost some: most on small pages and pools.
    assert critical(steps) >= 0.75
    if not load.scenario.restarts:
        assert {step.need for step in steps if step.critical} >= set(needs)
    assert len(load.scenario.restarts) <= 1
    assert load.scheduler.retractions == 0


BROKEN_BY = [
    # pool, queue, needs, poll, travel
    (Pool(224, 29), 64, (1, 2, 3, 3), 3, 0),
    (Pool(224, 29), 200, (1, 2, 1), 1, 0),
    (Pool(192, 35), 64, (1, 3), 2, 3),
    (Pool(61, 68), 16, (8, 1, 5), 1, 2),
]


@pytest.mark.xfail(strict=True, reason="after a change of need that went wrong, what waits plays on for long")
@pytest.mark.parametrize(("pool", "queue", "needs", "poll", "travel"), BROKEN_BY)
def test_each_need_in_turn_is_held_on_every_pool(
    pool: Pool, queue: int, needs: tuple[int, ...], poll: int, travel: int
) -> None:
    load = tight_load(pool, queue=queue, needs=needs, steps_per_need=64, poll=poll, travel=travel)
    load.run(steps_to_settle(pool))
    assert critical(load.run(64 * len(needs) + 64)) >= 0.75


@pytest.mark.parametrize("pages", [32, 256])
@pytest.mark.parametrize("overlap", [True, False])
def test_the_first_crossing_is_critical_already(pages: int, overlap: bool) -> None:
    load = tight_load(Pool(128, pages), overlap=overlap)
    steps = load.run(60)
    assert next(step.step for step in steps if step.crossing) == 24
    assert all(step.critical for step in steps if step.crossing)


@pytest.mark.parametrize("pool", [Pool(128, 32), Pool(128, 256), Pool(16, 7)])
@pytest.mark.parametrize("overlap", [True, False])
def test_0_5_18_meets_its_first_critical_step_as_soon(pool: Pool, overlap: bool) -> None:
    load = tight_load(pool, overlap=overlap, rules=OLD, poll=2, travel=1)
    assert any(step.critical for step in load.run(30))


def test_0_5_18_comes_to_the_edge_again_and_again() -> None:
    """It cannot be held there: a request that has ended opens admission only after the next decode step."""
    load = tight_load(Pool(128, 32), rules=OLD)
    assert sum(step.critical for step in load.run(3000)) > 20


@pytest.mark.parametrize("pages", [32, 64])
@pytest.mark.parametrize("release", RELEASES.different)
def test_without_overlap_every_release_is_held_at_the_edge_by_its_own_rules(release: str, pages: int) -> None:
    """Told of another release, the planner admits in steps in which the server does not."""
    rules = RELEASES.different[release]
    steps = tight_load(Pool(128, pages), overlap=False, rules=rules).run(2000)
    assert sum(step.critical for step in steps) > 0.85 * len(steps)
    if not rules.ended_rows_leave_before_admission:
        fooled = tight_load(Pool(128, pages), overlap=False, rules=rules, told_rules=NEW).run(2000)
        assert sum(step.critical for step in fooled) < 0.5 * len(fooled)


@settings(max_examples=8)
@given(SMALL_PAGES, st.booleans(), QUEUES, st.integers(1, 600))
def test_after_a_queue_that_ran_dry_the_load_is_back_at_the_edge(
    pool: Pool, overlap: bool, queue: int, paused: int
) -> None:
    load = tight_load(pool, overlap=overlap, queue=queue, poll=2, travel=1, needs=(1,), orders=("oldest",))
    load.run(steps_to_settle(pool) + 50)
    load.pause(iterations=paused)
    load.run(2 * queue + steps_to_settle(pool) + 100)
    assert critical(load.run(100)) == 1


def test_a_queue_that_ran_dry_is_made_deeper() -> None:
    load = tight_load(Pool(128, 32), queue=8, needs=(1,), orders=("oldest",))
    load.run(300)
    load.pause(iterations=400)
    load.run(600)
    (restart,) = load.scenario.restarts
    assert restart.reason == "the server's queue ran dry; 16 requests are kept waiting from now on"


@settings(max_examples=8)
@given(SMALL_PAGES, st.booleans())
def test_a_wrong_belief_about_overlap_does_no_harm(pool: Pool, overlap: bool) -> None:
    load = tight_load(pool, overlap=overlap, told_overlap=not overlap, poll=2, travel=1, needs=(1,), orders=("oldest",))
    load.run(2 * steps_to_settle(pool))
    assert critical(load.run(100)) == 1


@settings(max_examples=8)
@given(SMALL_PAGES, st.booleans(), st.integers(1, 3))
def test_pages_that_a_stranger_holds_from_the_start_are_left_to_it(pool: Pool, overlap: bool, held: int) -> None:
    assume(pool.pages - held >= MIN_POOL_PAGES)
    load = tight_load(pool, overlap=overlap, poll=2, travel=1, needs=(1,), orders=("oldest",))
    load.hold_foreign_pages(held)
    load.run(2 * steps_to_settle(pool))
    assert critical(load.run(100)) == 1


SURPLUS_POOLS = [Pool(128, 32), Pool(128, 256), Pool(16, 32), Pool(64, 7), Pool(32, 300)]


@pytest.mark.parametrize("pages", [1, 2])
@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("pool", SURPLUS_POOLS, ids=str)
def test_a_surplus_that_stays_is_taken_up(pool: Pool, overlap: bool, pages: int) -> None:
    load = tight_load(pool, overlap=overlap, needs=(1,), orders=("oldest",))
    load.hold_foreign_pages(pages)
    load.run(300)
    load.release_foreign_pages()
    load.run(1200)
    assert critical(load.run(200)) == 1


@pytest.mark.parametrize("pool", SURPLUS_POOLS, ids=str)
def test_without_overlap_a_surplus_of_a_page_is_held_by_a_successor_without_a_new_start(pool: Pool) -> None:
    load = tight_load(pool, overlap=False, needs=(1,), orders=("oldest",))
    load.hold_foreign_pages(1)
    load.run(300)
    load.release_foreign_pages()
    # A round in which it is seen, the queue that was planned before, and the successor's turn.
    load.run(3 * choose_seats(pool, possible_leads(pool)[0]) + 150)
    assert critical(load.run(100)) == 1
    assert load.scenario.restarts == []


def test_when_too_few_steps_are_tight_it_begins_anew() -> None:
    with mock.patch("loadgen.scenarios.tight.scenario._FEWEST_TIGHT", 1.1):
        load = tight_load(Pool(128, 32), needs=(1,), orders=("oldest",))
        load.run(700)
    (restart,) = load.scenario.restarts
    assert restart.cause == "too few decode steps were tight"
    assert restart.reason.endswith("of the last 512")


@settings(max_examples=5)
@given(st.integers(96, 140), st.integers(MIN_POOL_PAGES, 100), st.booleans(), st.integers(1, 16), st.integers(6, 14))
def test_a_slow_observer_gets_there_with_a_longer_lead(
    page_size: int, pages: int, overlap: bool, poll: int, travel: int
) -> None:
    load = tight_load(Pool(page_size, pages), overlap=overlap, poll=poll, travel=travel, needs=(1,), orders=("oldest",))
    load.run(1000 + 4 * page_size)
    assert critical(load.run(200)) == 1


def test_a_lead_that_was_too_short_is_told_with_the_next() -> None:
    load = tight_load(Pool(128, 32), poll=16, travel=10)
    load.run(300)
    (restart,) = load.scenario.restarts
    assert restart.reason == "the first crossing came too early; it comes after 48 steps from now on"


@settings(max_examples=100)
@given(POOLS)
def test_seats_and_fill_leave_one_page_in_one_pass_of_admissions(pool: Pool) -> None:
    for lead in possible_leads(pool):
        seats = choose_seats(pool, lead)
        assert seats >= 3 and lead + seats <= pool.page_size
        # A pass of admissions charges each request a page more, and ends when nothing is left.
        assert seat_pages(pool, seats) >= 1 and seats * (seat_pages(pool, seats) + 1) < pool.pages
        assert fill_pages(pool, seats) >= 1
        assert seats * seat_pages(pool, seats) + fill_pages(pool, seats) == pool.pages - 1


@settings(max_examples=100)
@given(POOLS)
def test_a_prompt_fits_into_one_prefill_of_whole_pages(pool: Pool) -> None:
    arguments = Tight.engine_needs(pool, TightOptions()).arguments
    size = int(arguments[arguments.index("--chunked-prefill-size") + 1])
    assert size % pool.page_size == 0  # SGLang refuses to start otherwise
    assert size >= longest_prompt_pages(pool) * pool.page_size


@pytest.mark.parametrize("pages", [32, 64, 128, 256, 500])
def test_prompts_stay_short_where_the_pool_lets_them(pages: int) -> None:
    pool = Pool(128, pages)
    seats = choose_seats(pool, possible_leads(pool)[0])
    assert max(seat_pages(pool, seats), fill_pages(pool, seats)) * pool.page_size <= 8192


def test_admission_reserves_nothing_for_tokens_to_come() -> None:
    needs = Tight.engine_needs(Pool(128, 32), TightOptions())
    assert needs.environment == {"SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION": "0"}
    assert needs.arguments[:3] == ("--disable-radix-cache", "--schedule-conservativeness", "0")


@pytest.mark.parametrize(
    ("pool", "field", "value", "message"),
    [
        (Pool(31, 32), "engine.page_size", 31, "too small to stagger requests in; tight needs at least 32"),
        (Pool(32, 6), "engine.pool_pages", 6, "too few for requests to take turns; tight needs at least 7"),
    ],
)
def test_a_pool_on_which_it_cannot_work_is_refused(pool: Pool, field: str, value: int, message: str) -> None:
    (misfit,) = Tight.faults(pool, TightOptions())
    assert (misfit.field, misfit.value, misfit.message) == (field, value, message)
    assert Tight.faults(Pool(MIN_PAGE_SIZE, MIN_POOL_PAGES), TightOptions()) == []


def test_a_need_that_the_pool_cannot_hold_is_refused() -> None:
    (misfit,) = Tight.faults(Pool(128, 32), TightOptions(needs=(1, 5)))
    assert (misfit.field, misfit.value) == ("load.options.needs", 5)
    assert misfit.message == "more than 32 pages of 128 can be brought to need at once; at most 4"
    assert Tight.faults(Pool(128, 32), TightOptions(needs=(4, 1))) == []


def test_any_number_of_rows_comes_to_stand_behind_the_last_that_needs_a_page() -> None:
    load = tight_load(Pool(128, 32), needs=(1,))
    tight = [step for step in load.run(2500) if step.need == step.free == 1]
    assert {step.trailing for step in tight} >= set(range(max(step.batch_size for step in tight[100:]) - 1))


def test_same_observations_give_the_same_requests() -> None:
    def shapes() -> list[object]:
        load = tight_load(Pool(128, 32))
        load.run(200)
        return [request.shape for request in load.sent]

    assert shapes() == shapes()


def test_nothing_is_sent_while_the_carousel_empties() -> None:
    load: ModelledLoad = tight_load(Pool(128, 32), queue=8, needs=(1,), orders=("oldest",))
    load.run(300)
    load.pause(iterations=400)
    assert load.scheduler.idle
    sent = len(load.sent)
    while not load.scenario.restarts:
        load.iterate()
    assert len(load.sent) == sent
    assert Tight(ServerConfiguration(Pool(128, 32)), TightOptions(), seed=1).restarts == []
