"""The event loop that everything runs on: uvloop, with which a stream of tokens costs less than with asyncio's own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

ResultT = TypeVar("ResultT")


def run(main: Callable[..., Awaitable[ResultT]], *arguments: object) -> ResultT:
    """Run an asynchronous function to its end, as `anyio.run` does."""
    return anyio.run(main, *arguments, backend_options={"use_uvloop": True})
