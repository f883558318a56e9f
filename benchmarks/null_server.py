"""A null server: it has SGLang's HTTP interface and no model behind it, so that a client's own cost is what is left.

    python -m benchmarks.null_server --step-seconds 0.005      # prints its port

A request that is not streamed is answered at once. A stream gets one token, one event and one chunk in each step, all
streams in the same step, as from a server that decodes them in one batch. What is sent depends on the request's numbers
of tokens alone: any two clients that ask for the same get the same bytes in the same pieces.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import json
from collections.abc import AsyncIterator
from typing import Any

import httptools

_TOKEN, _TEXT = 65, "A"
_MODEL = "null"
_INFORMATION: dict[str, Any] = {
    "/v1/models": {"object": "list", "data": [{"id": _MODEL, "object": "model"}]},
    "/model_info": {"model_path": _MODEL, "is_generation": True},
    "/server_info": {"internal_states": [{}]},
    "/flush_cache": {},
}
_STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_LAST_CHUNKS = (b"data: [DONE]\n\n", b"")


def answer(prompt_tokens: int, new_tokens: int, max_new_tokens: int) -> dict[str, Any]:
    """What SGLang 0.5.23 says of a request when `new_tokens` have come, with the text that a tokenizer would give."""
    ended = new_tokens == max_new_tokens
    meta: dict[str, Any] = {
        "id": "0123456789abcdef0123456789abcdef",
        "finish_reason": {"type": "length", "length": max_new_tokens} if ended else None,
        "prompt_tokens": prompt_tokens,
        "weight_version": "default",
        "num_retractions": 0,
        "reasoning_tokens": 0,
        "completion_tokens": new_tokens,
        "cached_tokens": 0,
        "cached_tokens_details": None,
        "dp_rank": None,
    }
    if ended:
        meta["e2e_latency"] = 0.25
    return {"text": _TEXT * new_tokens, "output_ids": [_TOKEN] * new_tokens, "meta_info": meta}


@functools.lru_cache(maxsize=64)
def chunks(prompt_tokens: int, max_new_tokens: int) -> tuple[bytes, ...]:
    """A stream's chunks, in HTTP's chunked encoding: one a token, the end mark, and the end of the answer."""
    events = (
        b"data: %b\n\n" % _json(answer(prompt_tokens, tokens, max_new_tokens))
        for tokens in range(1, max_new_tokens + 1)
    )
    return tuple(b"%x\r\n%b\r\n" % (len(data), data) for data in (*events, *_LAST_CHUNKS))


@functools.lru_cache(maxsize=64)
def whole(prompt_tokens: int, max_new_tokens: int) -> bytes:
    """An answer that is not streamed."""
    return _json(answer(prompt_tokens, max_new_tokens, max_new_tokens))


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


class _Streams:
    """All streams that are open, which get their next chunk together."""

    def __init__(self, step_seconds: float) -> None:
        self._step_seconds = step_seconds
        self._open: dict[asyncio.Transport, tuple[tuple[bytes, ...], int]] = {}

    def begin(self, transport: asyncio.Transport, pieces: tuple[bytes, ...]) -> None:
        self._open[transport] = (pieces, 0)

    def forget(self, transport: asyncio.Transport) -> None:
        self._open.pop(transport, None)

    async def step_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._step_seconds)
            for transport, (pieces, place) in list(self._open.items()):
                transport.write(pieces[place])
                if place + len(_LAST_CHUNKS) + 1 < len(pieces):
                    self._open[transport] = (pieces, place + 1)
                    continue
                del self._open[transport]
                for piece in pieces[place + 1 :]:
                    transport.write(piece)


class _Connection(asyncio.Protocol):
    def __init__(self, streams: _Streams) -> None:
        self._streams = streams
        self._transport: Any = None
        self._parser: Any = httptools.HttpRequestParser(self)
        self._path = ""
        self._body: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._streams.forget(self._transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._path = url.decode().partition("?")[0]

    def on_body(self, part: bytes) -> None:
        self._body.append(part)

    def on_message_complete(self) -> None:
        body, self._body = b"".join(self._body), []
        if self._path != "/generate":
            known = self._path in _INFORMATION
            self._answer(_json(_INFORMATION.get(self._path, {})), b"200 OK" if known else b"404 Not Found")
            return
        request = json.loads(body)
        prompts, sampling = request["input_ids"], request["sampling_params"]
        if request.get("stream"):
            self._transport.write(_STREAM_HEAD)
            self._streams.begin(self._transport, chunks(len(prompts), sampling["max_new_tokens"]))
        elif isinstance(sampling, list):
            answers = (whole(len(prompt), own["max_new_tokens"]) for prompt, own in zip(prompts, sampling, strict=True))
            self._answer(b"[%b]" % b",".join(answers))
        else:
            self._answer(whole(len(prompts), sampling["max_new_tokens"]))

    def _answer(self, content: bytes, status: bytes = b"200 OK") -> None:
        self._transport.write(
            b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
            % (status, len(content), content)
        )


@contextlib.asynccontextmanager
async def null_server(step_seconds: float) -> AsyncIterator[int]:
    """A null server for as long as the block lasts; its port on 127.0.0.1."""
    streams = _Streams(step_seconds)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(streams), "127.0.0.1", 0, backlog=4096)
    stepping = asyncio.create_task(streams.step_for_ever())
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        stepping.cancel()
        server.close()


async def serve(step_seconds: float) -> None:
    """Print the port, and serve until cancelled."""
    async with null_server(step_seconds) as port:
        print(port, flush=True)
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.null_server", description="A server with no model.")
    parser.add_argument("--step-seconds", type=float, default=0.005, help="time of a step (default: %(default)s)")
    asyncio.run(serve(parser.parse_args().step_seconds))


if __name__ == "__main__":
    main()
