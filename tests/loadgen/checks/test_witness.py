"""Claims about witnesses: a wrong token is found wherever it is, and what may differ is never taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.checks.findings import FindingKind
from loadgen.checks.witness import PROMPTS_KEPT, Sighting, Witnesses, batches
from loadgen.http.logprobs import Scored
from loadgen.requests.outcome import Completion, RequestOutcome
from loadgen.requests.planned_request import PlannedRequest
from loadgen.requests.prompts import PromptMaker
from loadgen.sglang.shape import Segment, Shape

SEEN = Sighting(1.0, 10, 20)
TRUTH = tuple(range(100, 140))


def witnesses(share: float = 1.0, *, shared: bool = True, margin: float = 0.01) -> Witnesses:
    return Witnesses(PromptMaker(7, range(256)), 7, share, shared, margin)


def planned_request(prompt: int = 50, new: int = 8) -> PlannedRequest:
    return PlannedRequest(Shape(prompt, new))


def known(ids: tuple[int, ...] = TRUTH, **others: float) -> Scored:
    """An answer, and for each of its tokens how probable others were: `_9=-0.6`."""
    told = {int(token[1:]): logprob for token, logprob in others.items()}
    return Scored(ids, (-0.5,) * len(ids), (told,) * len(ids))


def hear(court: Witnesses, *answers: tuple[int, ...], prompt: int = 50) -> list[object]:
    """Witnesses with these answers."""
    disputes = []
    for number, answer in enumerate(answers, start=court.answered + 1):
        request = planned_request(prompt, len(answer))
        assert court.chooses(number, request)
        disputes.append(
            court.add_answer(number, request, Completion(RequestOutcome.DONE, 1.0, output_ids=answer), SEEN)
        )
    return disputes


@given(st.lists(st.integers(1, len(TRUTH)), min_size=1))
def test_answers_of_any_length_that_are_right_are_never_found_wrong(lengths: list[int]) -> None:
    court = witnesses()
    assert hear(court, *[TRUTH[:length] for length in lengths]) == [None] * len(lengths)
    (question,) = court.questions()
    assert question.longest == max(lengths)
    assert court.compare(question, known(TRUTH[: question.longest])) == []
    assert (court.answered, court.compared, court.not_compared, court.disagreeing) == (len(lengths), len(lengths), 0, 0)


@given(st.integers(0, len(TRUTH) - 1), st.integers(0, 3), st.integers(0, 3))
def test_a_wrong_token_is_found_wherever_it_is(place: int, before: int, behind: int) -> None:
    court = witnesses()
    wrong = (*TRUTH[:place], 7, *TRUTH[place + 1 :])
    hear(court, *[TRUTH] * before, wrong, *[TRUTH] * behind)
    (question,) = court.questions()
    (found,) = court.compare(question, known())
    assert (found.kind, found.count, found.prompt_tokens) == (FindingKind.WRONG_OUTPUT, 1, 50)
    assert f"token {place + 1} of 40 is 7, without pressure it is {100 + place}" in found.detail
    assert "between decode steps 10 and 20" in found.detail
    assert court.disagreeing == (before + behind > 0)


@given(st.integers(1, len(TRUTH) - 1))
def test_two_witnesses_that_disagree_are_a_dispute_at_once_and_told_once(place: int) -> None:
    court = witnesses()
    wrong = (*TRUTH[:place], 7, *TRUTH[place + 1 :])
    _, dispute = hear(court, TRUTH, wrong)
    assert dispute is not None
    assert dispute.prompt == [*court.prompt(1, planned_request()), *TRUTH[:place]]  # type: ignore[attr-defined]
    found = court.settle(dispute, Scored((100 + place,), (-0.1,), ({9: -3.0},)))  # type: ignore[arg-type]
    assert found is not None and f"differ at token {place + 1}" in found.detail
    (question,) = court.questions()
    assert court.compare(question, known()) == [], "it was told already"


def test_tokens_that_are_as_good_as_each_other_are_a_near_tie_and_no_finding() -> None:
    court = witnesses(margin=0.01)
    _, dispute = hear(court, (1, 2, 3), (1, 9, 3))
    assert court.settle(dispute, Scored((2,), (-0.5,), ({9: -0.505, 4: -0.501},))) is None  # type: ignore[arg-type]
    (question,) = court.questions()
    assert court.compare(question, known((1, 2, 3), _4=-0.501, _9=-0.505)) == []
    assert court.near_ties == 1
    assert [found.count for found in court.compare(question, known((1, 2, 3), _9=-0.6))] == [1]


def test_who_is_a_witness_follows_from_seed_and_number() -> None:
    chosen = [number for number in range(5000) if witnesses(0.1).chooses(number, planned_request())]
    assert chosen == [number for number in range(5000) if witnesses(0.1).chooses(number, planned_request())]
    assert 400 < len(chosen) < 600
    assert not any(witnesses(0.0).chooses(number, planned_request()) for number in range(5000))
    assert not witnesses().chooses(1, PlannedRequest(Shape(50, 8), hang_up_seconds=1.0))


def test_without_a_prefix_cache_witnesses_of_one_length_have_one_prompt() -> None:
    court = witnesses()
    assert (
        court.prompt(1, planned_request(50))
        == court.prompt(2, planned_request(50, 99))
        != court.prompt(1, planned_request(51))[:50]
    )
    assert len(court.prompt(1, planned_request(50))) == 50


def test_with_a_prefix_cache_a_witness_has_the_prompt_that_it_would_have_had_anyway() -> None:
    court = witnesses(shared=False)
    request = PlannedRequest(Shape(50, 8), shared=(Segment(3, 20),))
    assert court.prompt(4, request) == PromptMaker(7, range(256)).prompt(4, request)
    hear(court, TRUTH, TRUTH)
    assert len(list(court.questions())) == 2


@pytest.mark.parametrize("shared", [False, True])
def test_what_is_kept_stays_small_however_long_the_load_is(shared: bool) -> None:
    court = witnesses(shared=shared)
    taken = 0
    for number in range(1, 1000):
        if court.chooses(number, request := planned_request(number)):
            taken += 1
            court.add_answer(number, request, Completion(RequestOutcome.DONE, 1.0, output_ids=TRUTH), SEEN)
    questions = list(court.questions())
    assert len(questions) == PROMPTS_KEPT
    for question in questions:
        assert court.compare(question, known()) == []
    assert (court.answered, court.compared) == (taken, PROMPTS_KEPT)


@pytest.mark.parametrize("outcome", [one for one in RequestOutcome if one is not RequestOutcome.DONE])
def test_only_answers_that_are_whole_are_compared(outcome: RequestOutcome) -> None:
    court = witnesses()
    assert court.chooses(1, planned_request())
    court.add_answer(1, planned_request(), Completion(outcome, 1.0, output_ids=(1, 2)), SEEN)
    assert court.answered == 0 and list(court.questions()) == []


@given(st.lists(st.tuples(st.integers(1, 600), st.integers(1, 40)), max_size=30), st.integers(2, 40))
def test_questions_are_asked_in_batches_that_leave_the_pool_free(asked: list[tuple[int, int]], pages: int) -> None:
    court = witnesses()
    for prompt, length in asked:
        hear(court, TRUTH[:length], prompt=prompt)
    questions = list(court.questions())
    told = list(batches(questions, pages, 128, 4))
    assert [question for batch in told for question in batch] == questions
    for batch in told:
        takes = sum(-(-(len(question.prompt) + question.longest) // 128) + 1 for question in batch)
        assert len(batch) == 1 or (takes <= pages and len(batch) <= 4)
