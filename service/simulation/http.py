"""A small HTTP/1.1 server: requests with their whole body in, answers and streams of events out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Protocol, cast

import httptools

JSON = "application/json"
EVENTS = "text/event-stream; charset=utf-8"


class Handler(Protocol):
    """What is served."""

    def received(self, connection: HttpConnection, method: str, path: str, body: bytes) -> None:
        """A request has come whole. It is answered through the connection, now or later."""

    def hung_up(self, connection: HttpConnection) -> None:
        """The client is gone."""


class HttpConnection(asyncio.Protocol):
    """One client's connection. Requests on it are answered one after the other, as clients here send them."""

    def __init__(self, handler: Handler, known: set[HttpConnection]) -> None:
        self._handler = handler
        self._known = known
        self._transport: asyncio.Transport | None = None
        self._parser: Any = httptools.HttpRequestParser(self)
        self._path = b""
        self._body: list[bytes] = []
        self._keeps = True

    def answer(self, status: int, content: Any, kind: str = JSON) -> None:
        """Answer the request.

        Args:
            content: bytes as they are, anything else as JSON.
        """
        body = content if isinstance(content, bytes) else json.dumps(content, separators=(",", ":")).encode()
        self._head(status, kind, f"Content-Length: {len(body)}\r\n")
        self._write(body)
        self._done()

    def begin_events(self) -> None:
        """Answer with a stream of events, up to `end_events`."""
        self._head(HTTPStatus.OK, EVENTS, "Transfer-Encoding: chunked\r\n")

    def event(self, text: str) -> None:
        data = f"data: {text}\n\n".encode()
        self._write(b"%x\r\n%s\r\n" % (len(data), data))

    def end_events(self) -> None:
        self.event("[DONE]")
        self._write(b"0\r\n\r\n")
        self._done()

    def drop(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _head(self, status: int, kind: str, more: str) -> None:
        keeps = "keep-alive" if self._keeps else "close"
        phrase = HTTPStatus(status).phrase
        head = f"HTTP/1.1 {status} {phrase}\r\nContent-Type: {kind}\r\nConnection: {keeps}\r\n{more}\r\n"
        self._write(head.encode())

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _done(self) -> None:
        if not self._keeps and self._transport is not None:
            self._transport.close()

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._known.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._known.discard(self)
        self._handler.hung_up(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.drop()

    # What the parser calls.

    def on_message_begin(self) -> None:
        self._path, self._body = b"", []

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        self._keeps = self._parser.should_keep_alive()
        method = self._parser.get_method().decode()
        self._handler.received(self, method, self._path.decode().partition("?")[0], b"".join(self._body))


async def listen(handler: Handler, host: str, port: int, known: set[HttpConnection]) -> asyncio.Server:
    """Serve; `known` holds the connections that are open.

    Raises:
        OSError: the port cannot be had.
    """
    factory: Callable[[], HttpConnection] = lambda: HttpConnection(handler, known)  # noqa: E731
    return await asyncio.get_running_loop().create_server(factory, host, port, reuse_address=True, backlog=2048)
