"""`lastpage serve`: the HTTP server, and its way out."""

from __future__ import annotations

import asyncio
import socket
from types import FrameType

import uvicorn

from service.controller import Controller

DRAIN_SECONDS = 10


class ControllerServer(uvicorn.Server):
    """Stops in order: first the runs, so that their watchers see the end, then the connections.

    A second signal is for those who cannot wait: the run is cut off. Either way no engine is left.
    """

    def __init__(self, config: uvicorn.Config, controller: Controller) -> None:
        super().__init__(config)
        self._controller = controller
        self._stopping: list[asyncio.Task[None]] = []

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Called by the signal handler, between any two instructions of the loop's own code."""
        self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        self._stopping.append(self._loop.create_task(self._stop_runs()))

    async def _stop_runs(self) -> None:
        manager = self._controller.manager
        await (manager.shutdown(grace_seconds=0) if len(self._stopping) > 1 else manager.shutdown())
        self.should_exit = True


def listen(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        OSError: the address cannot be had.
    """
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    return socket.create_server(address[:2], family=family)


def serve(controller: Controller, listener: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM."""
    from service.api.app import create_app

    config = uvicorn.Config(create_app(controller), loop="uvloop", timeout_graceful_shutdown=DRAIN_SECONDS)
    ControllerServer(config, controller).run(sockets=[listener])
