"""The HTTP application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.responses import RedirectResponse

from service.api import engine_metrics, engines, health, runs, scenarios, targets
from service.api.body_limit import BodyLimit
from service.api.errors import install_error_handlers
from service.controller import Controller, build_controller
from service.report.json_report import lastpage_version

_DESCRIPTION = (
    "Drives the KV page pool of an SGLang server exactly to exhaustion, proves that it got there, "
    "and says whether the server survived."
)


def create_app(controller: Controller | None = None) -> FastAPI:
    """The application around a controller, which it starts and stops."""
    controller = controller or build_controller()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with controller.manager.started():
            yield

    app = FastAPI(title="lastpage", version=lastpage_version(), description=_DESCRIPTION, lifespan=lifespan)
    app.state.controller = controller
    app.state.registry = controller.metrics.registry()
    for resource in (runs, engines, scenarios, targets, health, engine_metrics):
        app.include_router(resource.router)
    install_error_handlers(app)
    app.add_middleware(BodyLimit)

    @app.get("/", include_in_schema=False)
    async def _() -> RedirectResponse:
        return RedirectResponse(app.docs_url or "/docs")

    return app
