"""Claims about the driver and its response_checks together: disputes are settled at once, and who starves is let go."""

from __future__ import annotations

from typing import Any

import pytest

from loadgen.checks.fairness import NEVER_ADMITTED, Fairness, Work
from loadgen.checks.findings import Occurrence
from loadgen.checks.response_checks import ResponseChecks
from loadgen.checks.witness import CONTRADICTS, DISAGREE, Witnesses
from loadgen.driver import Driver
from loadgen.http.client import GenerateClient, GenerateRequest
from loadgen.http.logprobs import Scored
from loadgen.requests.outcome import RequestOutcome
from loadgen.requests.planned_request import PlannedRequest
from loadgen.requests.prompts import PromptMaker
from loadgen.requests.wave import Wave
from loadgen.sglang.shape import Shape

from ..fake_sglang import Answer, Exchange, answer_in_full, completion, fake_sglang
from ..test_driver import Feed, Given, never

pytestmark = pytest.mark.anyio

PROMPTS = PromptMaker(7, range(256))
ONE = Wave.of([Shape(9, 4)])


def scored(token: int, logprob: float, other: int, behind: float) -> dict[str, Any]:
    """SGLang's answer of one token, with the most probable two."""
    return {
        "output_ids": [token],
        "meta_info": {
            "output_token_logprobs": [[logprob, token, None]],
            "output_top_logprobs": [[[logprob, token, None], [logprob - behind, other, None]]],
        },
    }


async def found(
    answer: Answer, response_checks: ResponseChecks, *waves: Wave, seconds: float = 0.6
) -> tuple[list[Occurrence], Driver]:
    async with fake_sglang(answer) as server:
        client = GenerateClient(server.url)
        driver = Driver(Given(*waves), client, Feed(), PROMPTS, response_checks=response_checks)
        await driver.run(seconds)
    return response_checks.take(), driver


@pytest.mark.parametrize(("behind", "causes"), [(3.0, [DISAGREE]), (0.001, [])], ids=["wrong", "near tie"])
async def test_two_witnesses_that_disagree_are_settled_by_asking(behind: float, causes: list[str]) -> None:
    asked: list[Any] = []

    async def differently(exchange: Exchange) -> None:
        if exchange.body.get("return_logprob"):
            asked.append(exchange.body)
            await exchange.json([scored(5, -0.1, 6, behind)])
            return
        answers.append([5, 5, 5 + len(answers) % 2, 5])
        await exchange.json([completion(4) | {"output_ids": answers[-1]}])

    answers: list[list[int]] = []
    witnesses = Witnesses(PROMPTS, 7, 1.0, margin=0.01)
    told, driver = await found(differently, ResponseChecks(PROMPTS, witnesses), ONE, ONE, ONE)
    assert [one.cause for one in told] == causes
    (question,) = asked
    assert question["input_ids"] == [[*PROMPTS.witness(9), 5, 5]]
    assert question["sampling_params"][0]["max_new_tokens"] == 1
    assert driver.tally.outcomes == {RequestOutcome.DONE: 3}, "the question is no request of the load"


@pytest.mark.parametrize("streamed", [False, True], ids=["together", "streamed"])
async def test_an_answer_that_contradicts_itself_is_found_of_every_request(streamed: bool) -> None:
    async def one_short(exchange: Exchange) -> None:
        answer = completion(4) | {"output_ids": [5] * 3}
        if not exchange.body.get("stream"):
            await exchange.json([answer])
            return
        await exchange.begin_stream()
        await exchange.event(answer)
        await exchange.event("[DONE]")
        await exchange.end_stream()

    told, _ = await found(one_short, ResponseChecks(PROMPTS), Wave.of([Shape(9, 4)], streamed=streamed))
    assert [(one.cause, one.prompt_tokens) for one in told] == [(CONTRADICTS, 9)]


async def test_the_oldest_call_is_taken_back_from_a_server_that_stands_idle() -> None:
    work = Work()
    response_checks = ResponseChecks(PROMPTS, fairness=Fairness(0.2), work=lambda: work)
    told, driver = await found(never, response_checks, ONE, Wave((PlannedRequest(Shape(5, 3)),)))
    assert told == [] and driver.tally.outcomes == {RequestOutcome.CANCELLED: 2}
    assert driver.unserved == 1, "the other one was taken back by the end of the load, not for its sake"
    response_checks.served()
    (starved,) = response_checks.take()
    assert (starved.cause, starved.prompt_tokens) == (NEVER_ADMITTED, 9)
    assert driver.unserved == 0


async def test_a_healthy_server_is_accused_of_nothing() -> None:
    steps = 0

    def work() -> Work:
        nonlocal steps
        steps += 1
        return Work(steps, steps, 0)

    witnesses = Witnesses(PROMPTS, 7, 1.0)
    response_checks = ResponseChecks(PROMPTS, witnesses, Fairness(0.1), work)
    waves = [Wave.of([Shape(9, 4), Shape(8, 6)], streamed=streamed) for streamed in (False, True) * 3]
    told, driver = await found(answer_in_full, response_checks, *waves)
    assert told == [] and driver.tally.outcomes == {RequestOutcome.DONE: 12}
    assert (witnesses.answered, witnesses.disagreeing) == (12, 0)


async def test_scores_are_asked_for_and_read() -> None:
    async def respond(exchange: Exchange) -> None:
        assert exchange.body["return_logprob"] is True and exchange.body["top_logprobs_num"] == 5
        await exchange.json([scored(5, -0.1, 6, 2.0)] * len(exchange.body["input_ids"]))

    async with fake_sglang(respond) as server:
        client = GenerateClient(server.url)
        answers = await client.score([GenerateRequest([1, 2], 1)] * 2)
    assert answers == [Scored((5,), (-0.1,), ({6: -2.1},))] * 2


@pytest.mark.parametrize("answer", [{"error": "no"}, [], [completion(1)]], ids=str)
async def test_scores_of_any_other_form_are_refused(answer: Any) -> None:
    async def respond(exchange: Exchange) -> None:
        await exchange.json(answer)

    async with fake_sglang(respond) as server:
        client = GenerateClient(server.url)
        with pytest.raises(ValueError):
            await client.score([GenerateRequest([1, 2], 1)])
