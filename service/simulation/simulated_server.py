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

from service.simulation.calls import GenerateBody, OpenCall
from service.simulation.engine import RequestRefused, SchedulerFailure, ServedRequest, SimulatedEngine
from service.simulation.http import HttpConnection, listen
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
        self._connections: set[HttpConnection] = set()
        self._calls: dict[HttpConnection, OpenCall] = {}
        self._by_request: dict[ServedRequest, OpenCall] = {}
        self._listener: asyncio.Server | None = None
        self._routes: dict[tuple[str, str], Callable[[HttpConnection, bytes], None]] = {
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
        for call in [call for call in self._calls.values() if call.generate.stream]:
            call.tell(now)
        for request in ended:
            owner = self._by_request.pop(request, None)
            if owner is not None and owner.ended(now):
                self._calls.pop(owner.connection, None)

    def _fall_silent(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for connection in list(self._connections):
            connection.drop()

    # -- what is asked

    def received(self, connection: HttpConnection, method: str, path: str, body: bytes) -> None:
        route = self._routes.get((method, path))
        if route is None:
            connection.answer(HTTPStatus.NOT_FOUND, {"detail": "Not Found"})
        else:
            route(connection, body)

    def hung_up(self, connection: HttpConnection) -> None:
        call = self._calls.pop(connection, None)
        if call is not None:
            self._take_back(call)

    def _take_back(self, call: OpenCall) -> None:
        for request in call.requests:
            if self._by_request.pop(request, None) is not None:
                self._engine.abort(request)
        self._arrived.set()

    def _generate(self, connection: HttpConnection, body: bytes) -> None:
        try:
            generate = GenerateBody.read(body)
            call = OpenCall(generate, connection, self._launch)
            now = self._clock.now()
            requests = [
                self._engine.submit(prompt, tokens, now)
                for prompt, tokens in zip(generate.prompts, generate.max_new_tokens, strict=True)
            ]
        except (RequestRefused, ValueError) as error:
            connection.answer(HTTPStatus.BAD_REQUEST, {"error": {"message": str(error)}})
            return
        call.begin(requests)
        self._calls[connection] = call
        self._by_request |= dict.fromkeys(requests, call)
        self._arrived.set()

    def _abort(self, connection: HttpConnection, body: bytes) -> None:
        for call in list(self._calls.values()):
            if b'"abort_all"' in body or any(rid and rid.encode() in body for rid in call.generate.rids):
                call.connection.drop()
        connection.answer(HTTPStatus.OK, b"")

    def _flush(self, connection: HttpConnection, _: bytes) -> None:
        done = self._engine.flush()
        connection.answer(HTTPStatus.OK if done else HTTPStatus.BAD_REQUEST, b"Cache flushed." if done else b"")

    def _metrics(self, connection: HttpConnection, _: bytes) -> None:
        connection.answer(HTTPStatus.OK, exposition(self._engine, self._launch).encode(), _TEXT)

    def _health(self, connection: HttpConnection, _: bytes) -> None:
        connection.answer(HTTPStatus.OK, b"")

    def _model_info(self, connection: HttpConnection, _: bytes) -> None:
        connection.answer(HTTPStatus.OK, {"served_model_name": self._launch.name, "is_generation": True})

    def _server_info(self, connection: HttpConnection, _: bytes) -> None:
        told = {"version": self._launch.simulation.version, "max_total_num_tokens": self._launch.server.pool.tokens}
        connection.answer(HTTPStatus.OK, told)
