"""SGLang's HTTP before a simulated engine, and the loop that has the engine's iterations take their time."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import sys
import time
from collections.abc import Callable
from http import HTTPStatus

from service.simulation.calls import Asked, Call
from service.simulation.engine import RequestRefused, SchedulerFailure, ServedRequest, SimulatedEngine
from service.simulation.http import Connection, listen
from service.simulation.launch import Launch
from service.simulation.metrics import exposition

# The event loop cannot sleep for less; what an iteration takes beyond that is made good by a later one.
_SHORTEST_SLEEP_SECONDS = 0.002
_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class SimulatedServer:
    """Serves one engine. It is the `Handler` of its connections."""

    def __init__(self, launch: Launch, engine: SimulatedEngine) -> None:
        self._launch = launch
        self._engine = engine
        self._clock = launch.clock
        self._arrived = asyncio.Event()
        self._connections: set[Connection] = set()
        self._calls: dict[Connection, Call] = {}
        self._by_request: dict[ServedRequest, Call] = {}
        self._listener: asyncio.Server | None = None
        self._routes: dict[tuple[str, str], Callable[[Connection, bytes], None]] = {
            ("POST", "/generate"): self._generate,
            ("POST", "/flush_cache"): self._flush,
            ("POST", "/abort_request"): self._abort,
            ("GET", "/metrics"): self._metrics,
            ("GET", "/health"): self._health,
            ("GET", "/health_generate"): self._health,
        }
        for path in ("/model_info", "/get_model_info"):
            self._routes["GET", path] = self._model_info
        for path in ("/server_info", "/get_server_info"):
            self._routes["GET", path] = self._server_info

    async def serve(self) -> None:
        """Serve until the process is ended, or the engine comes to its end."""
        self._listener = await listen(self, self._launch.host, self._launch.port, self._connections)
        print("The server is fired up and ready to roll! (simulated)", flush=True)
        try:
            await self._iterate()
        except SchedulerFailure as failure:
            print(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {failure.text}", file=sys.stderr, flush=True)
            # As SGLang: it sends itself SIGQUIT, and its processes live on for seconds.
            await asyncio.sleep(self._clock.machine_seconds(self._launch.simulation.dying_seconds))
            os.kill(os.getpid(), signal.SIGKILL)

    async def _iterate(self) -> None:
        due = time.monotonic()
        while True:
            if self._engine.at_rest and not self._arrived.is_set():
                await self._arrived.wait()
                due = time.monotonic()
            self._arrived.clear()
            seconds = self._engine.iterate()
            if self._engine.signal is not None:
                os.kill(os.getpid(), self._engine.signal)
            if self._engine.falls_silent:
                self._fall_silent()
            if math.isinf(seconds):
                await asyncio.Event().wait()
            self._tell()
            now = time.monotonic()
            due = max(due + self._clock.machine_seconds(seconds), now - _SHORTEST_SLEEP_SECONDS)
            await asyncio.sleep(due - now if due - now > _SHORTEST_SLEEP_SECONDS else 0)

    def _tell(self) -> None:
        """Send what has come: tokens of streams, and answers that are whole."""
        now = self._clock.now()
        ended = self._engine.take_ended(now)
        for call in [call for call in self._calls.values() if call.asked.stream]:
            call.tell(now)
        for request in ended:
            asked_by = self._by_request.pop(request, None)
            if asked_by is not None and asked_by.ended(now):
                self._calls.pop(asked_by.connection, None)

    def _fall_silent(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for connection in list(self._connections):
            connection.drop()

    # -- what is asked

    def asked(self, connection: Connection, method: str, path: str, body: bytes) -> None:
        route = self._routes.get((method, path))
        if route is None:
            connection.answer(HTTPStatus.NOT_FOUND, {"detail": "Not Found"})
        else:
            route(connection, body)

    def hung_up(self, connection: Connection) -> None:
        call = self._calls.pop(connection, None)
        if call is not None:
            self._take_back(call)

    def _take_back(self, call: Call) -> None:
        for request in call.requests:
            if self._by_request.pop(request, None) is not None:
                self._engine.abort(request)
        self._arrived.set()

    def _generate(self, connection: Connection, body: bytes) -> None:
        try:
            asked = Asked.read(body)
            call = Call(asked, connection, self._launch)
            now = self._clock.now()
            requests = [
                self._engine.submit(prompt, tokens, now)
                for prompt, tokens in zip(asked.prompts, asked.max_new_tokens, strict=True)
            ]
        except (RequestRefused, ValueError) as error:
            connection.answer(HTTPStatus.BAD_REQUEST, {"error": {"message": str(error)}})
            return
        call.begin(requests)
        self._calls[connection] = call
        self._by_request |= dict.fromkeys(requests, call)
        self._arrived.set()

    def _abort(self, connection: Connection, body: bytes) -> None:
        for call in list(self._calls.values()):
            if b'"abort_all"' in body or any(rid and rid.encode() in body for rid in call.asked.rids):
                call.connection.drop()
        connection.answer(HTTPStatus.OK, b"")

    def _flush(self, connection: Connection, _: bytes) -> None:
        done = self._engine.flush()
        connection.answer(HTTPStatus.OK if done else HTTPStatus.BAD_REQUEST, b"Cache flushed." if done else b"")

    def _metrics(self, connection: Connection, _: bytes) -> None:
        connection.answer(HTTPStatus.OK, exposition(self._engine, self._launch).encode(), _TEXT)

    def _health(self, connection: Connection, _: bytes) -> None:
        connection.answer(HTTPStatus.OK, b"")

    def _model_info(self, connection: Connection, _: bytes) -> None:
        connection.answer(HTTPStatus.OK, {"served_model_name": self._launch.name, "is_generation": True})

    def _server_info(self, connection: Connection, _: bytes) -> None:
        told = {"version": self._launch.simulation.version, "max_total_num_tokens": self._launch.server.pool.tokens}
        connection.answer(HTTPStatus.OK, told)
