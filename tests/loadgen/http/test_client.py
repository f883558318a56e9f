"""Claims about the client: it tells every outcome apart, and a 200 alone is no success."""

from __future__ import annotations

import asyncio
import math
import socket
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.http.client import GenerateClient, GenerateRequest, Sampling, judge
from loadgen.requests.outcome import FAILURES, Completion, RequestOutcome

from ..fake_sglang import Answer, Exchange, answer_in_full, completion, fake_sglang

pytestmark = pytest.mark.anyio

REQUEST = GenerateRequest([1, 2, 3], max_new_tokens=4)
ABORT = {"type": "abort", "message": "Out of memory even after retracting all other requests", "status_code": 500}


async def ask(answer: Answer, *, streamed: bool, requests: int = 1, patience: float = 5.0) -> list[Completion]:
    async with fake_sglang(answer) as server:
        client = GenerateClient(server.url, timeout=patience)
        if streamed:
            return [await client.send_streamed(REQUEST)]
        return await client.send_together([REQUEST] * requests)


def answering(answer: Any, status: int = 200) -> Answer:
    """One answer for all requests; as a stream's last event where a stream is asked for."""

    async def respond(exchange: Exchange) -> None:
        if status != 200 or not exchange.body.get("stream"):
            await exchange.json(answer, status)
            return
        await exchange.begin_stream()
        await exchange.event(answer[0])
        await exchange.event("[DONE]")
        await exchange.end_stream()

    return respond


BOTH_WAYS = pytest.mark.parametrize("streamed", [False, True], ids=["together", "streamed"])


@BOTH_WAYS
@pytest.mark.parametrize(
    ("answer", "outcome", "detail"),
    [
        ([completion(4)], RequestOutcome.DONE, ""),
        ([completion(2, {"type": "stop", "matched": 2})], RequestOutcome.DONE, ""),
        ([completion(3)], RequestOutcome.TRUNCATED, "3 new tokens of 4"),
        ([completion(0)], RequestOutcome.TRUNCATED, "0 new tokens of 4"),
        ([completion(2, ABORT)], RequestOutcome.ABORTED, ABORT["message"]),
        ([completion(4, ABORT)], RequestOutcome.ABORTED, ABORT["message"]),
        ([{"error": {"message": "out of slots"}}], RequestOutcome.ERROR, "out of slots"),
        ([{"text": "not of SGLang's form"}], RequestOutcome.ERROR, "not of SGLang's form"),
    ],
)
async def test_what_a_200_answer_says_in_band_decides(
    streamed: bool, answer: Any, outcome: RequestOutcome, detail: str
) -> None:
    (told,) = await ask(answering(answer), streamed=streamed)
    assert told.outcome is outcome
    assert detail in told.detail


async def test_requests_sent_together_are_judged_one_by_one_in_their_order() -> None:
    answers = [completion(4), completion(1, ABORT), {"error": "no"}, completion(3)]
    told = await ask(answering(answers), streamed=False, requests=4)
    expected = [RequestOutcome.DONE, RequestOutcome.ABORTED, RequestOutcome.ERROR, RequestOutcome.TRUNCATED]
    assert [one.outcome for one in told] == expected
    assert [one.new_tokens for one in told] == [4, 1, 0, 3]


@pytest.mark.parametrize("answer", [{"error": "for all of them"}, [], [completion(4)], completion(4), "text", None, 7])
async def test_an_answer_that_is_not_one_for_each_request_is_an_error_of_all(answer: Any) -> None:
    told = await ask(answering(answer), streamed=False, requests=2)
    assert [one.outcome for one in told] == [RequestOutcome.ERROR] * 2


@pytest.mark.parametrize(
    "event", [[], "text", None, 7, {"meta_info": None}, {"meta_info": {"finish_reason": 1}}], ids=str
)
async def test_a_stream_of_anything_else_is_an_error(event: Any) -> None:
    (told,) = await ask(answering([event]), streamed=True)
    assert told.outcome is RequestOutcome.ERROR


@BOTH_WAYS
@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
async def test_any_other_status_is_a_refusal_with_what_was_said(streamed: bool, status: int) -> None:
    (told,) = await ask(answering({"error": {"message": "queue is full"}}, status), streamed=streamed)
    assert told.outcome is RequestOutcome.REFUSED
    assert told.detail.startswith(f"HTTP {status}: ") and "queue is full" in told.detail


@BOTH_WAYS
async def test_an_answer_that_is_no_json_is_an_error(streamed: bool) -> None:
    async def respond(exchange: Exchange) -> None:
        if exchange.body.get("stream"):
            await exchange.begin_stream()
            await exchange.event("{")
        else:
            await exchange.raw(b"<html>")

    (told,) = await ask(respond, streamed=streamed)
    assert told.outcome is RequestOutcome.ERROR


async def test_an_error_in_the_middle_of_a_stream_is_not_made_good_by_its_end() -> None:
    async def respond(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.event({"error": {"message": "aborted by the scheduler"}})
        await exchange.event(completion(4))
        await exchange.event("[DONE]")
        await exchange.end_stream()

    (told,) = await ask(respond, streamed=True)
    assert told.outcome is RequestOutcome.ERROR and "aborted by the scheduler" in told.detail


async def test_a_stream_without_its_end_mark_is_lost_even_with_all_tokens() -> None:
    async def respond(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.event(completion(4))
        await exchange.end_stream()

    (told,) = await ask(respond, streamed=True)
    assert (told.outcome, told.detail) == (RequestOutcome.LOST, "the stream ended without its end mark")


async def test_an_empty_stream_is_an_error() -> None:
    async def respond(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.event("[DONE]")
        await exchange.end_stream()

    (told,) = await ask(respond, streamed=True)
    assert told.outcome is RequestOutcome.ERROR


@BOTH_WAYS
async def test_a_connection_that_breaks_is_lost(streamed: bool) -> None:
    async def respond(exchange: Exchange) -> None:
        if exchange.body.get("stream"):
            await exchange.begin_stream()
            await exchange.event(completion(1, finish={}))
        exchange.break_off()

    (told,) = await ask(respond, streamed=streamed)
    assert told.outcome is RequestOutcome.LOST


@BOTH_WAYS
async def test_nobody_on_the_port_is_lost(streamed: bool) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        client = GenerateClient("http://127.0.0.1:{1}".format(*taken.getsockname()))
        told = await (client.send_streamed(REQUEST) if streamed else client.send_together([REQUEST]))
    assert (told if isinstance(told, Completion) else told[0]).outcome is RequestOutcome.LOST


@BOTH_WAYS
async def test_a_server_that_falls_silent_is_timed_out(streamed: bool) -> None:
    async def respond(exchange: Exchange) -> None:
        if exchange.body.get("stream"):
            await exchange.begin_stream()
            await exchange.event(completion(1, finish={}))
        await asyncio.sleep(60)

    (told,) = await ask(respond, streamed=streamed, patience=0.1)
    assert told.outcome is RequestOutcome.TIMED_OUT
    assert told.seconds >= 0.1


async def test_a_stream_tells_when_its_tokens_came() -> None:
    async def respond(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await anyio.sleep(0.05)
        for tokens in (1, 2, 4):
            await exchange.event(completion(tokens))
        await exchange.event("[DONE]")
        await exchange.end_stream()

    (told,) = await ask(respond, streamed=True)
    assert told.first_token_seconds is not None and told.first_token_seconds >= 0.05
    assert len(told.token_gaps) == 3
    (without,) = await ask(answer_in_full, streamed=False)
    assert (without.first_token_seconds, without.token_gaps) == (None, ())


async def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    (told,) = await ask(answer_in_full, streamed=False)
    assert told.outcome is RequestOutcome.DONE


async def test_the_request_says_what_was_asked_for() -> None:
    async with fake_sglang(answer_in_full) as server:
        client = GenerateClient(server.url, sampling=Sampling(never=(2, 7)))
        await client.send_together([REQUEST, GenerateRequest([9], max_new_tokens=8)])
        await client.send_streamed(REQUEST)
    shared = {"temperature": 0.0, "logit_bias": {"2": -1e9, "7": -1e9}}
    together, streamed = server.bodies
    assert together == {
        "input_ids": [[1, 2, 3], [9]],
        "sampling_params": [{"max_new_tokens": 4, **shared}, {"max_new_tokens": 8, **shared}],
    }
    assert streamed == {"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 4, **shared}, "stream": True}


def test_early_stop_is_left_to_the_model_unless_told_otherwise() -> None:
    """`ignore_eos` is never sent: SGLang admits such requests by a rule that never over-commits."""
    assert Sampling().parameters(5) == {"max_new_tokens": 5, "temperature": 0.0}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FINISHES = JSON | st.fixed_dictionaries(
    {"type": JSON | st.sampled_from(["length", "abort", "stop"])}, optional={"message": JSON}
)
METAS = JSON | st.fixed_dictionaries({"finish_reason": FINISHES, "completion_tokens": JSON, "e2e_latency": JSON})


@given(JSON | st.fixed_dictionaries({"meta_info": METAS}))
def test_whatever_the_server_answers_is_an_outcome(answer: Any) -> None:
    told = judge(answer, REQUEST, passed_seconds=0.0)
    assert told.outcome in RequestOutcome
    assert len(told.detail) <= 300
    assert math.isfinite(told.seconds)


def test_only_done_and_cancelled_are_no_failures() -> None:
    assert set(RequestOutcome) - FAILURES == {RequestOutcome.DONE, RequestOutcome.HUNG_UP, RequestOutcome.CANCELLED}


@BOTH_WAYS
async def test_an_answer_comes_with_its_token_ids(streamed: bool) -> None:
    (told,) = await ask(answer_in_full, streamed=streamed)
    assert (told.output_ids, told.contradiction) == ((5,) * 4, "")


@BOTH_WAYS
async def test_an_answer_that_contradicts_itself_says_how(streamed: bool) -> None:
    (told,) = await ask(answering([completion(4) | {"output_ids": [5] * 3}]), streamed=streamed)
    assert told.outcome is RequestOutcome.DONE
    assert told.contradiction == "3 token ids, and a token count of 4"


async def test_a_stream_whose_tokens_change_says_so() -> None:
    async def respond(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.event({"output_ids": [6, 5], "meta_info": {"completion_tokens": 2}})
        await exchange.event(completion(4))
        await exchange.event("[DONE]")
        await exchange.end_stream()

    (told,) = await ask(respond, streamed=True)
    assert "do not begin with the 2" in told.contradiction
