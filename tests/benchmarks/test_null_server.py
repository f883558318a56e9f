"""Claims about the null server: it treats all clients alike, and answers as SGLang does."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import anyio
import pytest

from benchmarks.client_load import Job, run
from benchmarks.null_server import answer, chunks, null_server, whole
from loadgen.http.client import GenerateClient, GenerateRequest
from loadgen.requests.outcome import RequestOutcome

pytestmark = pytest.mark.anyio

STEP_SECONDS = 0.001
PROMPT, NEW = [7] * 30, 20


def by_bench_serving(*, streamed: bool) -> dict[str, Any]:
    """What bench_serving of 0.5.23 sends (`benchmark/serving.py`, async_request_sglang_generate)."""
    return {
        "input_ids": PROMPT,
        "sampling_params": {"temperature": 0.0, "max_new_tokens": NEW, "ignore_eos": True},
        "stream": streamed,
        "lora_path": "",
        "return_logprob": False,
        "return_routed_experts": False,
        "logprob_start_len": -1,
    }


def by_lastpage(*, streamed: bool) -> dict[str, Any]:
    body: dict[str, Any] = {"input_ids": PROMPT, "sampling_params": {"max_new_tokens": NEW, "temperature": 0.0}}
    return body | ({"stream": True} if streamed else {})


async def received(port: int, body: dict[str, Any], path: str = "/generate") -> bytes:
    """Every byte that comes back, up to the end of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    content = json.dumps(body).encode()
    writer.write(f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content)
    if body.get("stream"):
        came = await reader.readuntil(b"0\r\n\r\n")
    else:
        head = await reader.readuntil(b"\r\n\r\n")
        came = head + await reader.readexactly(int(head.partition(b"content-length: ")[2].split()[0]))
    writer.close()
    return came


@pytest.mark.parametrize("streamed", [False, True])
async def test_both_load_generators_get_the_same_bytes(streamed: bool) -> None:
    async with null_server(STEP_SECONDS) as port:
        ours = await received(port, by_lastpage(streamed=streamed))
        assert ours == await received(port, by_bench_serving(streamed=streamed))
    assert ours.count(b"data: ") == (NEW + 1 if streamed else 0)


async def test_answers_of_a_batch_call_are_those_of_single_calls() -> None:
    batch = {"input_ids": [PROMPT, [7]], "sampling_params": [{"max_new_tokens": NEW}, {"max_new_tokens": 3}]}
    async with null_server(STEP_SECONDS) as port:
        body = (await received(port, batch)).partition(b"\r\n\r\n")[2]
    assert body == b"[%b,%b]" % (whole(len(PROMPT), NEW), whole(1, 3))


async def test_a_stream_gets_one_token_a_step() -> None:
    async with null_server(0.01) as port:
        began = anyio.current_time()
        await received(port, by_lastpage(streamed=True))
    assert anyio.current_time() - began >= 0.01 * NEW
    events = [json.loads(part.partition(b"data: ")[2]) for part in chunks(30, 4)[:4]]
    assert events == [answer(30, tokens, 4) for tokens in (1, 2, 3, 4)]


async def test_the_client_takes_its_answers_for_whole_ones() -> None:
    async with null_server(STEP_SECONDS) as port:
        client = GenerateClient(f"http://127.0.0.1:{port}")
        request = GenerateRequest(PROMPT, NEW)
        told = [*await client.send_together([request] * 3), await client.send_streamed(request)]
    assert [(one.outcome, one.new_tokens, one.contradiction) for one in told] == [(RequestOutcome.DONE, NEW, "")] * 4
    assert len(told[-1].token_gaps) == NEW - 1


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_measured_load_is_the_one_that_was_asked_for(streamed: bool) -> None:
    async with null_server(STEP_SECONDS) as port:
        job = Job(f"http://127.0.0.1:{port}", streamed, requests=21, at_once=8, batch=4, prompt_tokens=9, new_tokens=5)
        told = await run(job)
    assert (told["done"], told["new_tokens"]) == (21, 105)
    assert told["cpu_seconds"] > 0


@pytest.mark.parametrize("path", ["/v1/models", "/model_info", "/server_info", "/flush_cache"])
async def test_it_has_what_bench_serving_asks_for(path: str) -> None:
    async with null_server(STEP_SECONDS) as port:
        assert (await received(port, {}, path)).startswith(b"HTTP/1.1 200 ")
        assert (await received(port, {}, "/other")).startswith(b"HTTP/1.1 404 ")
