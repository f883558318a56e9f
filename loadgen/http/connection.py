"""A small HTTP/1.1 client of one server, made to cost little: the load must not be limited by what makes it.

httptools, the parser of Node.js, reads the answers. What of an answer's body has come is handed on at once, inside the
event loop's own callback: no task is woken for each token of a stream.

Every request has a new connection. A server that was held up reads what waits on open connections before it accepts
new ones, so a request on a connection that was kept could overtake one that was sent before it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

import anyio
import httptools

from ..errors import LoadError

_INTERIM = range(100, 200)

PartReader = Callable[[bytes], bool]
"""Takes what has come of an answer's body; whether that is enough, and the connection shall be dropped."""


class HttpError(LoadError):
    """No complete answer came."""


class ConnectionLost(HttpError):
    """There was no connection, it broke, or what came over it is no HTTP."""


class Silence(HttpError):
    """The server sent nothing for longer than it was given."""


@dataclass
class HttpAnswer:
    """An answer of HTTP.

    Attributes:
        status: the status code.
        body: what came of the body and was not given to a part reader.
    """

    status: int
    body: bytes = b""


class HttpClient:
    """Sends POST requests with JSON bodies, any number at a time, each over a connection of its own.

    Args:
        base_url: `http://HOST:PORT`.
        silence_seconds: seconds without a byte from the server after which an answer is given up, and without a
            connection.

    Raises:
        ValueError: the address is of another form.
    """

    def __init__(self, base_url: str, silence_seconds: float) -> None:
        address = urlsplit(base_url)
        if address.scheme != "http" or not address.hostname or address.path.strip("/"):
            raise ValueError(f"{base_url!r} is no address of a server; write http://HOST:PORT")
        self._host, self._port = address.hostname, address.port or 80
        self._head = f" HTTP/1.1\r\nHost: {address.netloc}\r\nConnection: close\r\n"
        self._head += "Content-Type: application/json\r\nContent-Length: "
        self._silence_seconds = silence_seconds

    async def post(self, path: str, body: bytes, on_part: PartReader | None = None) -> HttpAnswer:
        """Send a request, and wait for the end of its answer.

        Args:
            body: JSON.
            on_part: is given the parts of the body as they come when the status is 200, instead of their being kept.

        Raises:
            HttpError: no complete answer came.
            Exception: whatever the part reader raised, at which the connection was dropped.
        """
        connection = await self._connect()
        request = f"POST {path}{self._head}{len(body)}\r\n\r\n".encode() + body
        try:
            return await connection.exchange(request, on_part, self._silence_seconds)
        finally:
            connection.drop()

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        try:
            with anyio.fail_after(self._silence_seconds):
                _, connection = await loop.create_connection(lambda: _Connection(loop), self._host, self._port)
                return connection
        except TimeoutError as error:
            raise ConnectionLost(f"no connection to port {self._port} within {self._silence_seconds:g} s") from error
        except OSError as error:
            raise ConnectionLost(f"no connection to port {self._port}: {error.strerror or error}") from error


@dataclass
class _Exchange:
    """One request and its answer on the way.

    Attributes:
        status: of the answer; 0 before its head has come, and after that of an interim answer, such as 103.
        delimited: whether the head told where the body ends. Otherwise it ends with the connection.
    """

    done: asyncio.Future[HttpAnswer]
    on_part: PartReader | None
    status: int = 0
    delimited: bool = False
    parts: list[bytes] = field(default_factory=list)


class _Connection(asyncio.Protocol):
    """One connection, for one request."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._parser: Any = httptools.HttpResponseParser(self)
        self._exchange: _Exchange | None = None
        self._silence: asyncio.TimerHandle | None = None
        self._heard_at = time.monotonic()

    async def exchange(self, request: bytes, on_part: PartReader | None, silence_seconds: float) -> HttpAnswer:
        assert self._transport is not None, "a connection is made before it is used"
        if self._transport.is_closing():
            raise ConnectionLost("the server closed the connection")
        self._exchange = _Exchange(self._loop.create_future(), on_part)
        self._heard_at = time.monotonic()
        self._silence = self._loop.call_later(silence_seconds, self._look_for_silence, silence_seconds)
        self._transport.write(request)
        try:
            return await self._exchange.done
        finally:
            self._exchange = None
            if self._silence is not None:
                self._silence.cancel()

    def drop(self) -> None:
        """Close at once, whatever has not been sent or read."""
        if self._transport is not None:
            self._transport.abort()

    def _look_for_silence(self, silence_seconds: float) -> None:
        # A timer for every part of an answer would cost more than the part.
        remaining = self._heard_at + silence_seconds - time.monotonic()
        if remaining > 0:
            self._silence = self._loop.call_later(remaining, self._look_for_silence, silence_seconds)
        else:
            self._fail(Silence(f"nothing came for {silence_seconds:g} s"))

    def _fail(self, error: Exception) -> None:
        if self._exchange is not None and not self._exchange.done.done():
            self._exchange.done.set_exception(error)

    def _succeed(self) -> None:
        exchange = self._exchange
        if exchange is not None and not exchange.done.done():
            exchange.done.set_result(HttpAnswer(exchange.status, b"".join(exchange.parts)))

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is None and self._exchange is not None and self._exchange.status and not self._exchange.delimited:
            self._succeed()
        self._fail(ConnectionLost(f"the connection broke: {exc}" if exc else "the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._heard_at = time.monotonic()
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(ConnectionLost(f"what came is no HTTP: {error}"))
            self.drop()

    # What the parser calls.

    def on_header(self, name: bytes, value: bytes) -> None:  # noqa: ARG002
        if self._exchange is not None and name.lower() in (b"content-length", b"transfer-encoding"):
            self._exchange.delimited = True

    def on_headers_complete(self) -> None:
        if self._exchange is None:  # nothing was asked
            self.drop()
            return
        self._exchange.status = self._parser.get_status_code()

    def on_body(self, part: bytes) -> None:
        exchange = self._exchange
        if exchange is None or exchange.done.done():
            return
        if exchange.on_part is None or exchange.status != 200:
            exchange.parts.append(part)
            return
        try:
            enough = exchange.on_part(part)
        except Exception as error:
            self._fail(error)
            enough = True
        if enough:
            self._succeed()
            self.drop()

    def on_message_complete(self) -> None:
        if self._exchange is not None and self._exchange.status in _INTERIM:
            self._exchange.status = 0
            return
        self._succeed()
