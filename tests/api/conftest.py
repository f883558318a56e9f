"""An application around a fake executor."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import httpx
import pytest

from service.api.app import create_app
from service.controller import build_controller
from service.home import Home
from tests.fake_executor import FakeExecutor

Serve = Callable[[FakeExecutor], AbstractAsyncContextManager[httpx.AsyncClient]]


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """Starts an application around an executor and gives a client of it."""

    @asynccontextmanager
    async def serving(executor: FakeExecutor) -> AsyncIterator[httpx.AsyncClient]:
        app = create_app(build_controller(Home(tmp_path), executor))
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://controller:8000") as client,
        ):
            yield client

    return serving


@pytest.fixture
async def client(serve: Serve) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application whose runs pass at once."""
    async with serve(FakeExecutor()) as client:
        yield client
