"""The carousel follows the server, and foresees in which decode step each request crosses."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.scenarios.tight.carousel import Carousel, OutOfStep
from loadgen.scenarios.tight.crossing_schedule import CrossingSchedule, Phase
from loadgen.scenarios.tight.requests import QueuedRequest, RunningRequest
from loadgen.sglang.pages import Pool
from service.plugin.flight import AllocationOutcome, DecodeStep

from ..modelled_load import tight_load


class RecordingCarousel(Carousel):
    """Keeps every row, in the order in which they joined."""

    joined: list[RunningRequest]

    def follow(self, step: DecodeStep) -> None:
        before = set(map(id, self.running))
        super().follow(step)
        self.joined += [row for row in self.running if id(row) not in before]


@settings(max_examples=12)
@given(st.integers(32, 128), st.integers(7, 300), st.booleans(), st.integers(1, 4), st.integers(0, 2))
def test_each_request_crosses_in_the_step_that_the_carousel_foresaw(
    page_size: int, pages: int, overlap: bool, poll: int, travel: int
) -> None:
    RecordingCarousel.joined = []
    with mock.patch("loadgen.scenarios.tight.scenario.Carousel", RecordingCarousel):
        load = tight_load(Pool(page_size, pages), overlap=overlap, poll=poll, travel=travel)
    load.run(3 * page_size)
    foreseen = [row.last_step for row in RecordingCarousel.joined]
    # Riders join in the order of the queue.
    crossed = [(request, told) for request, told in zip(load.sent, foreseen, strict=False) if request.crossings]
    assert len(crossed) > page_size
    assert all(request.first_step + request.crossings[0] - 1 == told for request, told in crossed)


def step(
    number: int, batch_size: int, need: int, free: int = 9, retractions: int = 0, prefill_batches: int = 1
) -> DecodeStep:
    return DecodeStep(number, 0, batch_size, need, free, 0, AllocationOutcome.RETURNED, prefill_batches, retractions)


def carousel(*to_queue: QueuedRequest, overlap: bool = True) -> Carousel:
    made = Carousel(page_size=16, prefill_pages=10, overlap=overlap)
    made.queue_up(to_queue)
    return made


def schedule(*needs: int, others: int, start: int = 1) -> CrossingSchedule:
    return CrossingSchedule([Phase(need, others, steps=4) for need in needs], start)


def test_requests_join_in_the_order_in_which_they_were_sent() -> None:
    made = carousel(QueuedRequest(2, 5), QueuedRequest(3, 4), QueuedRequest(4, 9))
    made.follow(step(1, 1, 0))
    made.follow(step(2, 3, 0))
    assert made.running == [RunningRequest(2, 5, 5), RunningRequest(3, 5, 5), RunningRequest(4, 10, 10)]
    assert not made.queue


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (step(1, 3, 0), "other requests joined than were due: 3 in step 1, when 2 waited"),
        (step(1, 2, 2), "other pages were needed than foreseen: 2 in step 1, foreseen were 1"),
        (step(1, 2, 1, retractions=4), "requests were retracted: 4 before step 1"),
    ],
)
def test_what_was_not_foreseen_is_told(seen: DecodeStep, reason: str) -> None:
    with pytest.raises(OutOfStep, match=reason):
        carousel(QueuedRequest(1, 1), QueuedRequest(1, 5)).follow(seen)


def test_a_row_that_leaves_early_is_not_foreseen() -> None:
    made = carousel(QueuedRequest(1, 5), QueuedRequest(1, 6))
    made.follow(step(1, 2, 0))
    with pytest.raises(OutOfStep, match="-1 in step 2, when 0 waited"):
        made.follow(step(2, 1, 0))


def test_successors_leave_no_step_without_a_crossing() -> None:
    made = carousel(QueuedRequest(2, 4), QueuedRequest(2, 5), QueuedRequest(2, 6), overlap=False)
    made.follow(step(1, 3, 0, free=1))
    successors = made.successors(6, schedule(1, others=2))
    first_steps = iter([5, 6, 7, 8, 9, 10])
    assert [next(first_steps) + queued.at_step - 1 for queued in successors] == [7, 8, 9, 10, 11, 12]
    assert {queued.pages for queued in successors} == {2}


def test_pages_to_spare_are_held_by_the_next_successors_none_of_which_fills_a_prefill() -> None:
    made = carousel(QueuedRequest(2, 4), QueuedRequest(2, 5), QueuedRequest(2, 6), overlap=False)
    made.follow(step(1, 3, 0, free=15))
    assert [queued.pages for queued in made.successors(4, schedule(1, others=2))] == [9, 9, 2, 9]


def test_before_more_is_needed_successors_hold_less() -> None:
    made = carousel(QueuedRequest(4, 3), QueuedRequest(4, 4), QueuedRequest(4, 5), overlap=False)
    made.follow(step(1, 3, 0, free=1))
    # Two cross in step 6. In it two join, so that two more stay, and they leave two of the five pages free.
    successors = made.successors(4, schedule(1, 2, others=2, start=2))
    assert [queued.pages for queued in successors] == [4, 4, 2, 1]


def test_a_request_that_lives_on_keeps_the_pages_that_it_takes() -> None:
    made = carousel(QueuedRequest(2, 3, steps=40), overlap=False)
    for number in range(1, 24):
        made.follow(step(number, 1, int(number in (3, 19))))
    assert made.running == [RunningRequest(4, 35, 40)]
