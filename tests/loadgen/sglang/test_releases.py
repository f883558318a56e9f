"""Which rules an engine gets by its version, and what a new release takes to be known."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.coverage import After, Filler, Relation
from loadgen.coverage.reachable import Situation, possible
from loadgen.scenarios.tight.carousel_forecast import CarouselForecast
from loadgen.scenarios.tight.requests import QueuedRequest, RunningRequest
from loadgen.sglang import releases
from loadgen.sglang.limits import longest_admitted_prompt, longest_answer
from loadgen.sglang.pages import Pool
from loadgen.sglang.releases import NEWEST, RELEASES, ReleaseRules, rules_for
from loadgen.sglang.rules import Rules
from loadgen.sglang.scheduler import NotServable, Scheduler
from loadgen.sglang.server import ServerConfiguration
from loadgen.sglang.shape import Shape
from loadgen.sglang.steps import ModelStep


@pytest.mark.parametrize(
    ("version", "release", "assumed"),
    [
        ("0.5.18", "0.5.18", False),
        ("0.5.23", "0.5.23", False),
        ("0.5.23+ascend", "0.5.23", False),
        ("0.5.19rc1", "0.5.19", True),
        ("0.5.22.dev3+g1234", "0.5.22", True),
        ("0.5.23.post1", "0.5.23", True),
        ("0.5.18.post2", "0.5.18", True),
        ("0.5.24", "0.5.23", True),
        ("0.6.0rc1", "0.5.23", True),
        ("0.5.17", "0.5.17", False),
        ("0.5.16", "0.5.17", True),
        ("unknown", "0.5.23", True),
        ("1" * 5000, "0.5.23", True),
        (None, "0.5.23", True),
    ],
)
def test_an_engine_has_the_rules_of_its_release_and_it_is_said_when_nobody_read_it(
    version: str | None, release: str, assumed: bool
) -> None:
    assert rules_for(version) == ReleaseRules(rules_for(release).rules, release, assumed)


def test_releases_between_two_changes_have_the_same_rules() -> None:
    assert (
        rules_for("0.5.17").rules == rules_for("0.5.18").rules == rules_for("0.5.19").rules != rules_for("0.5.20").rules
    )
    assert rules_for("0.5.20").rules == rules_for("0.5.21").rules != rules_for("0.5.22").rules
    assert rules_for("0.5.22").rules != rules_for("0.5.23").rules == NEWEST


def steps_of_a_load(rules: Rules, seed: int) -> list[ModelStep]:
    """Requests at random on a small server with a prefix cache."""
    chance = random.Random(seed)
    scheduler = Scheduler(
        Pool(4, chance.randint(8, 14)), rules=rules, prefix_cache=True, chunked_prefill_size=chance.choice([4, 8, 8192])
    )
    for _ in range(60):
        if scheduler.waiting < 6 and chance.random() < 0.6:
            with contextlib.suppress(NotServable):
                scheduler.submit(Shape(chance.randint(1, 24), chance.randint(1, 16)))
        scheduler.iterate()
    return scheduler.steps


@pytest.mark.parametrize(("before", "after"), list(itertools.pairwise(RELEASES.different)))
def test_what_a_release_changed_makes_other_decode_steps_of_the_same_load(before: str, after: str) -> None:
    old, new = RELEASES.different[before], RELEASES.different[after]
    assert any(steps_of_a_load(old, seed) != steps_of_a_load(new, seed) for seed in range(3000))


def test_the_rules_that_a_value_of_rules_begins_with_are_the_newest() -> None:
    assert Rules() == NEWEST
    assert list(RELEASES.different.values())[-1] == NEWEST and len(set(RELEASES.different.values())) > 2
    assert NEWEST not in RELEASES.others(NEWEST)


# A release that nobody has made: one line in the table of releases. It admits a request only when two pages more than
# its prompt are left, not one.
MADE_UP = RELEASES.with_release("0.5.99", pages_beside_prompt=2)
TWO_PAGES_BESIDE = MADE_UP.newest


def test_a_release_that_is_added_to_the_table_is_known_and_the_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "RELEASES", MADE_UP)
    assert rules_for("0.5.99+ascend") == ReleaseRules(TWO_PAGES_BESIDE, "0.5.99", assumed=False)
    assert rules_for("0.6.0") == ReleaseRules(TWO_PAGES_BESIDE, "0.5.99", assumed=True)
    assert rules_for("0.5.23").rules == NEWEST
    assert (TWO_PAGES_BESIDE.pages_beside_prompt, NEWEST.pages_beside_prompt) == (2, 1)


SHAPES = st.lists(st.builds(Shape, st.integers(1, 60), st.integers(1, 40)), min_size=1, max_size=25)


@settings(max_examples=80, deadline=None)
@given(st.integers(3, 16), st.integers(12, 60), st.booleans(), st.booleans(), SHAPES)
def test_the_changed_rule_of_a_made_up_release_acts_in_the_model_and_no_page_is_lost(
    page_size: int, pages: int, overlap: bool, prefix_cache: bool, shapes: list[Shape]
) -> None:
    scheduler = Scheduler(Pool(page_size, pages), overlap=overlap, prefix_cache=prefix_cache, rules=TWO_PAGES_BESIDE)
    requests = []
    for shape in shapes:
        try:
            requests.append(scheduler.submit(shape))
        except NotServable:
            continue
    while not scheduler.idle:
        waiting = scheduler.waiting
        scheduler.iterate()
        scheduler.check()
        # A pass of admissions leaves two pages that are free, or can be made so.
        if scheduler.waiting < waiting:
            evictable = scheduler.cache.evictable_pages if scheduler.cache is not None else 0
            assert scheduler.pool.free_pages + evictable >= 2
    assert sorted(map(id, scheduler.ended)) == sorted(map(id, requests))
    cached = scheduler.cache.evictable_pages if scheduler.cache is not None else 0
    assert scheduler.pool.free_pages + cached == pages


def test_planner_coverage_and_limits_follow_the_changed_rule_too() -> None:
    pool = Pool(128, 32)
    assert longest_admitted_prompt(pool) - longest_admitted_prompt(pool, TWO_PAGES_BESIDE) == 128
    assert longest_answer(128, pool, TWO_PAGES_BESIDE) == longest_answer(128, pool)
    after_prefill = Situation(1, 8, 4, Relation.TIGHT, Filler.RUNNING_ROWS, After.PREFILL)
    assert possible(ServerConfiguration(pool), after_prefill)
    assert not possible(ServerConfiguration(pool, rules=TWO_PAGES_BESIDE), after_prefill)


@pytest.mark.parametrize(("rules", "admitted"), [(NEWEST, 2), (TWO_PAGES_BESIDE, 1)], ids=["0.5.23", "made up"])
def test_the_forecast_of_a_carousel_follows_the_changed_rule_too(rules: Rules, admitted: int) -> None:
    """Of 8 free pages the first takes 3 and is charged 4. The other two wait with 4 left: 3 and 1 are not more, 3 and
    2 are. A third would find nothing left."""
    queue = [QueuedRequest(pages=3, at_step=9)] * 3
    forecast = CarouselForecast(
        step=1,
        free=6,
        running=[RunningRequest(pages=1, crosses=1, last_step=1)],
        queue=queue,
        planner=lambda _: None,
        page_size=16,
        overlap=False,
        opened=False,
        rules=rules,
    )
    forecast.advance()
    assert (forecast.rows, forecast.free) == (admitted, 8 - 3 * admitted)


def test_a_field_that_rules_do_not_have_is_refused() -> None:
    broken: Callable[[], Any] = lambda: RELEASES.with_release("0.5.99", no_such_rule=1).newest  # noqa: E731
    with pytest.raises(TypeError, match="no_such_rule"):
        broken()
