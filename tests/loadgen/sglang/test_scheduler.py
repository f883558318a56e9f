"""The model of SGLang's scheduler: that it does what real servers did, and that it would notice a planner's mistake."""

from __future__ import annotations

import dataclasses
import json
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.sglang.pages import Pool, crossings
from loadgen.sglang.releases import RELEASES, rules_for
from loadgen.sglang.rules import Rules
from loadgen.sglang.scheduler import NotServable, OutOfPages, PagePool, Scheduler
from loadgen.sglang.shape import Shape
from loadgen.sglang.steps import ModelStep
from service.plugin.flight import AllocationOutcome, DecodeStep

from ..releases import DIFFERENT

# Made from the plan.jsonl and flight.bin of runs of `tight` on the releases named in them, cut before the run's end.
# Lists are run-length coded: [how often, what]. Of a request: prompt tokens, max_new_tokens.
# Of a decode step: batch rows, need, free, trailing, prefill_batches, retractions.
RECORDINGS = sorted((Path(__file__).parent / "recordings").glob("*.json"))


def expanded(coded: list[list[int]]) -> list[tuple[int, ...]]:
    return list(chain.from_iterable(repeat(tuple(what), times) for times, *what in coded))


def fields(step: ModelStep) -> tuple[int, ...]:
    return (step.batch_size, step.need, step.free, step.trailing, step.prefill_batches, step.retractions)


def replay(recording: dict[str, Any], wait: int) -> list[tuple[int, ...]]:
    """The model's steps for a recording's requests.

    The first wave is there from the start, the second arrives `wait` iterations after a decode step, and all others
    wait in the queue from then on.
    """
    expected = expanded(recording["steps"])
    scheduler = Scheduler(
        Pool(recording["page_size"], recording["pool_pages"]),
        overlap=recording["overlap"],
        rules=rules_for(recording["release"]).rules,
        chunked_prefill_size=recording["chunked_prefill_size"],
    )
    seats, fill, successors = ([Shape(*request) for request in expanded(wave)] for wave in recording["requests"])
    for shape in seats:
        scheduler.submit(shape)
    while len(scheduler.steps) < recording["second_wave_joined_in_step"] - 2:
        scheduler.iterate()
    for _ in range(wait):
        scheduler.iterate()
    for shape in fill:
        scheduler.submit(shape)
    while len(scheduler.steps) < recording["second_wave_joined_in_step"]:
        scheduler.iterate()
    for shape in successors:
        scheduler.submit(shape)
    while len(scheduler.steps) < len(expected):
        scheduler.iterate()
    return [fields(step) for step in scheduler.steps]


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_model_makes_the_very_steps_that_a_real_server_made(path: Path) -> None:
    recording = json.loads(path.read_text())
    expected = expanded(recording["steps"])
    # When exactly a wave arrived was not recorded; it came between two decode steps, or there was no such moment.
    assert expected in [replay(recording, wait) for wait in range(6)]


# Made from the plan.jsonl and flight.bin of runs of `mixed`: volleys, each sent when the server was idle, and the steps
# that they made. Requests are run-length coded, steps are not.
VOLLEYS = sorted((Path(__file__).parent / "recordings" / "volleys").glob("*.json"))


@pytest.mark.parametrize("path", VOLLEYS, ids=lambda path: path.stem)
def test_model_tells_every_step_that_volleys_made_on_a_real_server(path: Path) -> None:
    recording = json.loads(path.read_text())
    scheduler = Scheduler(
        Pool(recording["page_size"], recording["pool_pages"]),
        overlap=recording["overlap"],
        rules=rules_for(recording["release"]).rules,
        chunked_prefill_size=recording["chunked_prefill_size"],
    )
    for volley in recording["volleys"]:
        first = len(scheduler.steps)
        for request in expanded(volley["requests"]):
            scheduler.submit(Shape(*request))
        while not scheduler.idle:
            scheduler.iterate()
        assert [list(fields(step)) for step in scheduler.steps[first:]] == volley["steps"]


def test_a_step_of_the_model_tells_all_that_the_probe_tells_but_time_and_outcome() -> None:
    told = {field.name for field in dataclasses.fields(ModelStep)}
    recorded = {field.name for field in dataclasses.fields(DecodeStep)}
    assert recorded - told == {"at_ns", "outcome"}


@given(st.integers(1, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_a_step_of_the_model_is_tight_and_critical_when_the_probe_would_say_so(
    batch_size: int, need: int, free: int, trailing: int
) -> None:
    step = ModelStep(1, batch_size, need, free, trailing, prefill_batches=0, retractions=0)
    told = {field.name: getattr(step, field.name) for field in dataclasses.fields(step)}
    known = {field.name for field in dataclasses.fields(DecodeStep)}
    told = {name: value for name, value in told.items() if name in known}
    probed = DecodeStep(**told, at_ns=0, outcome=AllocationOutcome.RETURNED)
    assert (step.tight, step.critical) == (probed.tight, probed.critical)


SHAPES = st.lists(st.builds(Shape, st.integers(1, 60), st.integers(2, 40)), min_size=1, max_size=25)


@settings(max_examples=60)
@given(st.integers(2, 16), st.integers(12, 60), st.booleans(), st.booleans(), st.sampled_from(DIFFERENT), SHAPES)
def test_every_request_ends_with_the_steps_and_crossings_that_its_lengths_promise(
    page_size: int, pages: int, overlap: bool, prefix_cache: bool, rules: Rules, shapes: list[Shape]
) -> None:
    scheduler = Scheduler(
        Pool(page_size, pages),
        overlap=overlap,
        rules=rules,
        chunked_prefill_size=4 * page_size,
        prefix_cache=prefix_cache,
    )
    requests = []
    for shape in shapes:
        try:
            requests.append(scheduler.submit(shape))
        except NotServable:
            continue
        scheduler.iterate()
        scheduler.check()
    while not scheduler.idle:
        scheduler.iterate()
        scheduler.check()
    cached = scheduler.cache.evictable_pages if scheduler.cache is not None else 0
    assert scheduler.pool.free_pages + cached == pages
    assert sorted(map(id, scheduler.ended)) == sorted(map(id, requests))
    assert all(request.output == request.shape.max_new_tokens for request in requests)
    assert scheduler.retractions == sum(step.retractions for step in scheduler.steps)
    # A row of 0.5.18 that has ended may decode once more.
    if not scheduler.retractions and rules.rows_about_to_end_sit_out:
        assert all(request.crossings == list(crossings(request.shape, page_size)) for request in requests)
        assert all(request.decode_steps == request.shape.decode_steps for request in requests)
        assert sum(step.need for step in scheduler.steps) == sum(len(request.crossings) for request in requests)


@pytest.mark.parametrize(("overlap", "skipped"), [(True, 1), (False, 0)])
def test_overlap_puts_a_step_off_for_pages_that_are_about_to_come_back(overlap: bool, skipped: int) -> None:
    scheduler = Scheduler(Pool(4, 8), overlap=overlap)
    scheduler.submit(Shape(16, 2))  # takes the last page in step 1, and ends with it
    scheduler.submit(Shape(11, 8))  # needs a page in step 2
    while not scheduler.idle:
        scheduler.iterate()
    assert [(step.need, step.free) for step in scheduler.steps[:2]] == [(1, 1), (1, 5)]
    assert (scheduler.skipped, scheduler.retractions) == (skipped, 0)


def test_a_finished_row_takes_part_in_one_more_step_up_to_0_5_21() -> None:
    rows = {}
    for release, rules in RELEASES.different.items():
        scheduler = Scheduler(Pool(16, 10), overlap=True, rules=rules)
        scheduler.submit(Shape(8, 3))
        scheduler.submit(Shape(8, 5))
        while not scheduler.idle:
            scheduler.iterate()
        rows[release] = [step.batch_size for step in scheduler.steps]
    no_more, once_more = [2, 2, 1, 1], [2, 2, 2, 1, 1]
    assert rows == {"0.5.17": once_more, "0.5.20": once_more, "0.5.22": no_more, "0.5.23": no_more}


def test_requests_that_a_server_would_cut_or_refuse_are_not_taken() -> None:
    scheduler = Scheduler(Pool(16, 8))
    for shape in (Shape(16 * 8 - 6, 2), Shape(64, 48), Shape(1, 200)):
        with pytest.raises(NotServable):
            scheduler.submit(shape)
    scheduler.submit(Shape(64, 47))


class TestPagePool:
    def test_a_page_given_back_twice_is_noticed(self) -> None:
        pool = PagePool(Pool(16, 4))
        pages = pool.take(2)
        pool.release(pages)
        with pytest.raises(AssertionError, match="twice"):
            pool.release(pages)

    def test_a_page_held_by_two_rows_is_noticed(self) -> None:
        pool = PagePool(Pool(16, 4))
        (page,) = pool.take(1)
        pool.check([page])
        with pytest.raises(AssertionError, match="two rows"):
            pool.check([page, page])

    def test_a_lost_page_is_noticed(self) -> None:
        pool = PagePool(Pool(16, 4))
        pool.take(1)
        with pytest.raises(AssertionError, match="lost"):
            pool.check([])

    def test_more_pages_than_there_are_is_the_end_of_the_server(self) -> None:
        with pytest.raises(OutOfPages, match="5 pages are needed, 4 are free"):
            PagePool(Pool(16, 4)).take(5)
