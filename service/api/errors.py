"""Errors as JSON, all of one shape: `{"detail": [{"field", "value", "message"}, ...]}`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from service.api.body_limit import BodyTooLarge
from service.runs.manager import NotAccepting, RunEnded
from service.runs.store import RunNotFound
from service.spec.faults import Fault, InvalidSpec, fault_of
from service.spec.spec import RunSpec


class ErrorBody(BaseModel):
    """What every error answer holds."""

    detail: list[Fault] = Field(description="What is wrong, one entry a fault.")


def error_answer(status_code: int, faults: Sequence[Fault], headers: dict[str, str] | None = None) -> JSONResponse:
    body = ErrorBody(detail=list(faults))
    return JSONResponse(body.model_dump(mode="json"), status_code, headers=headers)


def install_error_handlers(app: FastAPI) -> None:
    """ScheduledStep what endpoints raise into answers."""

    @app.exception_handler(RequestValidationError)
    async def _(request: Request, error: RequestValidationError) -> JSONResponse:
        return error_answer(422, [_request_fault(request, detail) for detail in error.errors()])

    @app.exception_handler(InvalidSpec)
    async def _(_: Request, error: InvalidSpec) -> JSONResponse:
        return error_answer(422, error.faults)

    @app.exception_handler(RunNotFound)
    async def _(_: Request, error: RunNotFound) -> JSONResponse:
        return error_answer(404, [Fault(field="run_id", value=error.run_id, message=str(error))])

    @app.exception_handler(RunEnded)
    async def _(_: Request, error: RunEnded) -> JSONResponse:
        return error_answer(409, [Fault(field="run_id", value=error.run.id, message=str(error))])

    @app.exception_handler(NotAccepting)
    async def _(_: Request, error: NotAccepting) -> JSONResponse:
        return error_answer(503, [Fault(field="", message=str(error))])

    @app.exception_handler(BodyTooLarge)
    async def _(_: Request, error: BodyTooLarge) -> JSONResponse:
        fault = Fault(field="", value=f"{error.at_least:,} bytes or more", message=str(error.detail))
        # What is left of the body is not read.
        return error_answer(error.status_code, [fault], {"Connection": "close"})

    @app.exception_handler(HTTPException)
    async def _(request: Request, error: HTTPException) -> JSONResponse:
        fault = Fault(field="path", value=request.url.path, message=str(error.detail))
        return error_answer(error.status_code, [fault], dict(error.headers or {}))

    @app.exception_handler(Exception)
    async def _(_: Request, error: Exception) -> JSONResponse:
        return error_answer(500, [Fault(field="", message=f"the controller failed: {type(error).__name__}: {error}")])


def _request_fault(request: Request, detail: dict[str, Any]) -> Fault:
    place, *location = detail["loc"]
    if detail["type"] == "json_invalid":
        return Fault(field="", message=f"the body is not JSON: {detail.get('ctx', {}).get('error', detail['msg'])}")
    if place == "body" and not location and "json" not in request.headers.get("content-type", ""):
        return Fault(field="", message="send a run spec as JSON, with the header Content-Type: application/json")
    return fault_of(location, detail, RunSpec)
