"""Claims about the HTTP client: each call has a connection of its own, and an answer is read as HTTP says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
import pytest

from loadgen.http.connection import ConnectionLost, HttpClient, Silence

pytestmark = pytest.mark.anyio

Answer = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Counts connections, and answers each request as a test says."""

    def __init__(self, answer: Answer) -> None:
        self.connections = 0
        self.hung_up = asyncio.Event()
        self.url = ""
        self._answer = answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                await self._answer(await reader.readexactly(length), writer)
        self.hung_up.set()
        writer.close()


@contextlib.asynccontextmanager
async def serving(answer: Answer, silence_seconds: float = 5.0) -> AsyncIterator[tuple[Server, HttpClient]]:
    server = Server(answer)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = "http://127.0.0.1:{1}".format(*listening.sockets[0].getsockname())
    client = HttpClient(server.url, silence_seconds)
    yield server, client
    listening.close()


async def echo(body: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


async def test_each_call_has_a_connection_of_its_own_which_ends_with_it() -> None:
    """On one that is kept it could overtake a call that was sent before."""
    async with serving(echo) as (server, client):
        for number in range(5):
            assert (await client.post("/", b"%d" % number)).body == b"%d" % number
        answers = await asyncio.gather(*(client.post("/", b"%d" % number) for number in range(20)))
        assert [answer.body for answer in answers] == [b"%d" % number for number in range(20)]
        assert server.connections == 25


async def test_parts_are_handed_on_as_they_come() -> None:
    async def in_parts(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for part in (b"one", b"two", b"three"):
            writer.write(b"%x\r\n%b\r\n" % (len(part), part))
            await anyio.sleep(0.02)
        writer.write(b"0\r\n\r\n")

    parts: list[tuple[bytes, float]] = []
    async with serving(in_parts) as (_, client):
        answer = await client.post("/", b"", lambda part: parts.append((part, anyio.current_time())) or False)
    assert answer.body == b""
    assert [part for part, _ in parts] == [b"one", b"two", b"three"]
    assert parts[2][1] - parts[0][1] >= 0.03


async def test_when_a_reader_has_enough_the_server_sees_the_client_hang_up() -> None:
    async def endless(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"1\r\nx\r\n")
            await writer.drain()
            await anyio.sleep(0.001)

    async with serving(endless) as (server, client):
        with anyio.fail_after(5):
            await client.post("/", b"", lambda _: True)
            await server.hung_up.wait()


async def test_when_the_caller_is_cancelled_the_server_sees_the_client_hang_up() -> None:
    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        gone.set()
        writer.close()

    gone = asyncio.Event()
    listening = await asyncio.start_server(never, "127.0.0.1", 0)
    client = HttpClient("http://127.0.0.1:{1}".format(*listening.sockets[0].getsockname()), 5.0)
    with anyio.move_on_after(0.05):
        await client.post("/", b"{}")
    with anyio.fail_after(5):
        await gone.wait()
    listening.close()


async def test_what_a_reader_raises_comes_out_and_drops_the_connection() -> None:
    def fail(_: bytes) -> bool:
        raise ValueError("not to be read")

    async with serving(echo) as (server, client):
        with pytest.raises(ValueError, match="not to be read"):
            await client.post("/", b"1", fail)
        await client.post("/", b"2")
        assert server.connections == 2


async def test_another_status_is_not_handed_to_the_reader() -> None:
    async def refuse(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nfull")

    async with serving(refuse) as (_, client):
        answer = await client.post("/", b"", lambda _: True)
        assert (answer.status, answer.body) == (503, b"full")


async def test_interim_answers_are_passed_over() -> None:
    async def with_hints(body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n")
        await echo(body, writer)

    async with serving(with_hints) as (_, client):
        answer = await client.post("/", b"whole")
        assert (answer.status, answer.body) == (200, b"whole")


async def test_a_body_without_a_length_ends_with_the_connection() -> None:
    async def until_closed(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nwho")
        await anyio.sleep(0.02)
        writer.write(b"le")
        writer.close()

    async with serving(until_closed) as (_, client):
        assert (await client.post("/", b"")).body == b"whole"


async def test_an_answer_that_leaves_http_is_lost() -> None:
    async def upgrade(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")

    async with serving(upgrade) as (_, client):
        with pytest.raises(ConnectionLost):
            await client.post("/", b"")


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"])
async def test_a_server_that_falls_silent_at_any_place_is_given_up(head: bytes) -> None:
    async def stall(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        await anyio.sleep(60)

    async with serving(stall, silence_seconds=0.1) as (_, client):
        with pytest.raises(Silence):
            await client.post("/", b"")


async def test_a_slow_answer_is_not_silence() -> None:
    async def slow(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n")
        for _ in range(8):
            await anyio.sleep(0.05)
            writer.write(b"x")

    async with serving(slow, silence_seconds=0.2) as (_, client):
        assert (await client.post("/", b"")).body == b"x" * 8


@pytest.mark.parametrize("sent", [b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"])
async def test_what_is_no_complete_answer_is_lost(sent: bytes) -> None:
    async def respond(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        writer.close()

    async with serving(respond) as (_, client):
        with pytest.raises(ConnectionLost):
            await client.post("/", b"")


async def test_a_server_that_closes_at_once_is_not_waited_for() -> None:
    closed = await asyncio.start_server(lambda _, writer: writer.transport.abort(), "127.0.0.1", 0)
    client = HttpClient("http://127.0.0.1:{1}".format(*closed.sockets[0].getsockname()), silence_seconds=60.0)
    with anyio.fail_after(5):
        for _ in range(20):
            with pytest.raises(ConnectionLost):
                await client.post("/", b"")
    closed.close()


@pytest.mark.parametrize("url", ["https://127.0.0.1:1", "127.0.0.1:1", "http://", "http://127.0.0.1:1/path"])
def test_an_address_of_another_form_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="http://HOST:PORT"):
        HttpClient(url, 1.0)
