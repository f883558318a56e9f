"""Claims about the search for a shorter case, whatever it is that makes a case crash."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.requests.planned_request import PlannedRequest
from loadgen.sglang.pages import Pool, pages_for
from loadgen.sglang.shape import Segment, Shape
from loadgen.shrink import Case, CaseWave, Proposal, search

POOL = Pool(16, 8)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Waves of up to a dozen requests in all, numbered in order."""
    waves, number = [], 0
    for _ in range(draw(st.integers(1, 4))):
        requests = []
        for _ in range(draw(st.integers(1, 3))):
            number += 1
            shape = Shape(draw(st.integers(1, 60)), draw(st.integers(1, 20)))
            shared = (Segment(1, 1),) if draw(st.booleans()) else ()
            requests.append(PlannedRequest(shape, shared, draw(st.none() | st.just(3)), number=number))
        idle, streamed = draw(st.booleans()), draw(st.booleans())
        waves.append(CaseWave(tuple(requests), idle, 0 if idle else draw(st.integers(0, 9)), streamed=streamed))
    return Case(POOL, tuple(waves))


def shrink(case: Case, crashes: Callable[[Case], bool], **more: object) -> tuple[Case | None, list[Proposal]]:
    """Carry a search out; what it found, and all that it proposed."""
    proposals = []
    trials = search(case, **more)  # type: ignore[arg-type]
    try:
        proposal = next(trials)
        while True:
            proposals.append(proposal)
            proposal = trials.send(crashes(proposal.case))
    except StopIteration as end:
        return end.value, proposals


@settings(max_examples=60, deadline=None)
@given(cases(), st.integers(0, 2**32), st.floats(0.05, 0.9))
def test_the_result_has_crashed_and_nothing_is_tried_twice_or_without_being_shorter(
    case: Case, seed: int, often: float
) -> None:
    """Whatever crashes, even if it seems to be chance."""

    def crashes(candidate: Case) -> bool:
        return candidate == case or random.Random(f"{seed} {candidate}").random() < often

    best, proposals = shrink(case, crashes, patience=40)
    tried = [proposal.case for proposal in proposals]
    assert len(set(tried)) == len(tried)
    shortest = case
    for candidate in tried[1:]:
        assert candidate.size < shortest.size
        shortest = candidate if crashes(candidate) else shortest
    assert best == shortest


@settings(max_examples=40, deadline=None)
@given(cases(), st.data())
def test_only_the_requests_that_are_needed_are_left(case: Case, data: st.DataObject) -> None:
    numbers = [request.number for request in case.requests]
    needed = set(data.draw(st.lists(st.sampled_from(numbers), min_size=1, max_size=3)))
    best, _ = shrink(case, lambda candidate: needed <= {request.number for request in candidate.requests})
    assert best is not None
    assert {request.number for request in best.requests} == needed
    assert len(best.waves) == 1 and best.size[2:4] == (0, 0)
    assert all(request.shape.prompt_tokens in (1, POOL.page_size) for request in best.requests)
    assert all(request.shape.max_new_tokens <= 2 for request in best.requests)


@settings(max_examples=40, deadline=None)
@given(cases(), st.data())
def test_lengths_and_times_that_are_needed_are_found_exactly(case: Case, data: st.DataObject) -> None:
    needed = data.draw(st.sampled_from(case.requests))
    answer = data.draw(st.integers(min(2, needed.shape.max_new_tokens), needed.shape.max_new_tokens))

    def crashes(candidate: Case) -> bool:
        shapes = [request.shape for request in candidate.requests if request.number == needed.number]
        return any(s.max_new_tokens >= answer and s.prompt_tokens >= needed.shape.prompt_tokens for s in shapes)

    best, _ = shrink(case, crashes)
    assert best is not None
    (left,) = best.requests
    assert left.shape.max_new_tokens == answer
    assert pages_for(left.shape.prompt_tokens, 16) == pages_for(needed.shape.prompt_tokens, 16)
    assert left.shape.prompt_tokens == 1 or left.shape.prompt_tokens % 16 == 0


def test_a_case_that_does_not_crash_is_given_up_after_one_trial() -> None:
    case = Case(POOL, (CaseWave((PlannedRequest(Shape(5, 9), number=1),)),))
    best, proposals = shrink(case, lambda _: False)
    assert best is None and [proposal.case for proposal in proposals] == [case]


def test_a_likely_case_that_crashes_spares_the_original() -> None:
    original = Case(POOL, tuple(CaseWave((PlannedRequest(Shape(9, 9), number=n),) * 2) for n in range(1, 5)))
    likely = original.only([0])
    best, proposals = shrink(original, lambda case: case == likely, likely=[likely])
    assert best == likely and proposals[0].case == likely and original not in [p.case for p in proposals]
    best, proposals = shrink(original, lambda case: case == original, likely=[likely], patience=1)
    assert best == original and [proposal.case for proposal in proposals[:2]] == [likely, original]


def test_what_is_foreseen_is_tried_first_and_the_rest_all_the_same() -> None:
    requests = tuple(PlannedRequest(Shape(9, 2), number=number) for number in range(1, 7))
    case = Case(POOL, (CaseWave(requests),))

    def crashes(candidate: Case) -> bool:
        return {2, 5} <= {request.number for request in candidate.requests}

    _, blind = shrink(case, crashes)
    best, foreseen = shrink(case, crashes, foresee=crashes)
    assert best is not None and [request.number for request in best.requests] == [2, 5]
    assert [crashes(proposal.case) for proposal in foreseen[:2]] == [True, True]
    assert [crashes(proposal.case) for proposal in blind[:2]] == [True, False]
    wrong, _ = shrink(case, crashes, foresee=lambda candidate: not crashes(candidate))
    assert wrong == best


def test_no_request_that_the_server_would_refuse_is_tried_unless_the_original_has_one() -> None:
    requests = tuple(PlannedRequest(Shape(30, 9), number=number) for number in range(1, 5))
    for more, spared in ((), True), ((PlannedRequest(Shape(127, 2), number=9),), False):
        case = Case(POOL, (CaseWave((*requests, *more)),))
        _, proposals = shrink(case, lambda candidate, case=case: candidate == case)  # type: ignore[misc]
        longest = max(request.shape.prompt_tokens for proposal in proposals[1:] for request in proposal.case.requests)
        assert (longest <= 112) is spared


@pytest.mark.parametrize("patience", [1, 5])
def test_a_patience_bounds_the_trials_that_fail_one_after_another(patience: int) -> None:
    requests = tuple(PlannedRequest(Shape(90, 50), number=number) for number in range(1, 13))
    case = Case(POOL, (CaseWave(requests, after_steps=0),))
    _, proposals = shrink(case, lambda candidate: candidate == case, patience=patience)
    for move in {proposal.move for proposal in proposals[1:]}:
        assert sum(proposal.move == move for proposal in proposals) <= patience
