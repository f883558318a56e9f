"""Whether the controller lives, whether it takes work, and its metrics."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client.exposition import choose_encoder

from service.api.dependencies import ManagerDependency

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/readyz", responses={503: {"description": "no run is accepted now"}})
async def readyz(manager: ManagerDependency) -> JSONResponse:
    """Whether a run would be accepted now."""
    return JSONResponse({"status": "ready"}) if manager.accepting else JSONResponse({"status": "not ready"}, 503)


@router.get("/metrics", response_class=Response)
async def metrics(request: Request, accept: Annotated[str, Header()] = "") -> Response:
    """Prometheus metrics, in the format that was asked for."""
    encode, content_type = choose_encoder(accept)
    return Response(encode(request.app.state.registry), headers={"Content-Type": content_type})
