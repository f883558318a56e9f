"""SGLang's own metrics, handed on: the engine listens on 127.0.0.1 only, where no Prometheus elsewhere can reach it."""

from __future__ import annotations

from typing import Annotated

import httpx
from fastapi import APIRouter, HTTPException, Query, Response

from service.api.dependencies import ManagerDependency
from service.runs.manager import RunManager
from service.runs.model import Run, RunStatus

ENGINE_METRICS_PATH = "/metrics/engine"
_ANSWER_SECONDS = 3.0

router = APIRouter(tags=["health"])


async def live_runs(manager: RunManager) -> list[Run]:
    """The runs whose engine serves now: one at most, on one device."""
    runs = [run for status in (RunStatus.RUNNING, RunStatus.DRAINING) for run in await manager.list(status=status)]
    return [run for run in runs if run.engine is not None and run.engine.address is not None]


@router.get(
    ENGINE_METRICS_PATH,
    response_class=Response,
    responses={404: {"description": "that run has no engine now"}, 502: {"description": "the engine does not answer"}},
)
async def engine_metrics(
    manager: ManagerDependency,
    run: Annotated[str | None, Query(description="Only the engine of this run; absent: the one that serves.")] = None,
) -> Response:
    """What the engine's own `/metrics` says; empty when none serves and no run was named."""
    live = [candidate for candidate in await live_runs(manager) if run in (None, candidate.id)]
    if not live:
        if run is not None:
            raise HTTPException(404, f"run {run!r} has no engine that serves now")
        return Response(media_type="text/plain")
    engine = live[0].engine
    assert engine is not None
    try:
        async with httpx.AsyncClient(trust_env=False, timeout=_ANSWER_SECONDS) as client:
            answer = await client.get(f"http://{engine.address}/metrics", follow_redirects=True)
    except httpx.TransportError as error:
        raise HTTPException(502, f"engine {engine.name} does not answer: {type(error).__name__} {error}") from None
    if answer.status_code != httpx.codes.OK:
        raise HTTPException(502, f"engine {engine.name} answered {answer.status_code}")
    return Response(answer.content, headers={"Content-Type": answer.headers.get("content-type", "text/plain")})
