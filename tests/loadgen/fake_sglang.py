"""A tiny HTTP server in SGLang's place: it answers each request just as a test says, or breaks off."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

Answer = Callable[["Exchange"], Awaitable[None]]


class Exchange:
    """One request, and the means to answer it.

    Attributes:
        body: the request's JSON.
    """

    def __init__(self, body: Any, writer: asyncio.StreamWriter) -> None:
        self.body = body
        self._writer = writer

    async def json(self, answer: Any, status: int = 200) -> None:
        await self.raw(json.dumps(answer).encode(), status)

    async def raw(self, content: bytes, status: int = 200) -> None:
        await self._head(status, "application/json", f"Content-Length: {len(content)}")
        self._writer.write(content)
        await self._writer.drain()

    async def begin_stream(self) -> None:
        await self._head(200, "text/event-stream", "Transfer-Encoding: chunked")

    async def event(self, data: Any) -> None:
        """One event of a stream: a JSON value, or text that is sent as it is."""
        line = f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()
        self._writer.write(b"%x\r\n%b\r\n" % (len(line), line))
        await self._writer.drain()

    async def end_stream(self) -> None:
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    def break_off(self) -> None:
        """Drop the connection where it stands."""
        self._writer.transport.abort()

    async def _head(self, status: int, media_type: str, length: str) -> None:
        self._writer.write(f"HTTP/1.1 {status} Status\r\nContent-Type: {media_type}\r\n{length}\r\n\r\n".encode())
        await self._writer.drain()


class FakeSGLang:
    """The server.

    Attributes:
        url: its address.
        bodies: the JSON of every request so far.
    """

    def __init__(self, answer: Answer) -> None:
        self.url = ""
        self.bodies: list[Any] = []
        self._answer = answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                assert head.startswith("post /generate ")
                length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
                body = json.loads(await reader.readexactly(length))
                self.bodies.append(body)
                await self._answer(Exchange(body, writer))
        writer.close()


@contextlib.asynccontextmanager
async def fake_sglang(answer: Answer) -> AsyncIterator[FakeSGLang]:
    """A server for as long as the block lasts."""
    fake = FakeSGLang(answer)
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(fake.serve(reader, writer)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=2**24)
    fake.url = "http://127.0.0.1:{1}".format(*server.sockets[0].getsockname())
    try:
        yield fake
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        failures = await asyncio.gather(*tasks, return_exceptions=True)
        assert [failure for failure in failures if isinstance(failure, Exception)] == []


def completion(new_tokens: int, finish: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    """SGLang's answer to one request, or one event of its stream."""
    reason = {"type": "length", "length": new_tokens} if finish is None else finish
    return {
        "output_ids": [5] * new_tokens,
        "meta_info": {"finish_reason": reason, "completion_tokens": new_tokens, "e2e_latency": 0.25, **meta},
    }


async def answer_in_full(exchange: Exchange) -> None:
    """What a healthy SGLang does, of one request or of several, streamed or not."""
    sampling = exchange.body["sampling_params"]
    if not exchange.body.get("stream"):
        await exchange.json([completion(parameters["max_new_tokens"]) for parameters in sampling])
        return
    await exchange.begin_stream()
    for token in range(1, sampling["max_new_tokens"]):
        await exchange.event(completion(token, finish={}) | {"meta_info": {"completion_tokens": token}})
    await exchange.event(completion(sampling["max_new_tokens"]))
    await exchange.event("[DONE]")
    await exchange.end_stream()
