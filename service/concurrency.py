"""Several things at once, of which the first to end counts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

T = TypeVar("T")


async def first_of(*contestants: Callable[[], Awaitable[T]]) -> T:
    """Start all, return what the first to end returns, or raise what it raises; the others are cancelled.

    What is raised comes out as it is, not wrapped in an exception group.
    """
    results: list[T] = []
    failures: list[Exception] = []

    async def run(contestant: Callable[[], Awaitable[T]]) -> None:
        try:
            result = await contestant()
        except Exception as error:
            if not results and not failures:
                failures.append(error)
        else:
            if not results and not failures:
                results.append(result)
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for contestant in contestants:
            group.start_soon(run, contestant)
    if failures:
        raise failures[0]
    return results[0]
