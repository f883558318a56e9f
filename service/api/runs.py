"""Runs: create, list, show, cancel, watch, report."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from sse_starlette import EventSourceResponse, ServerSentEvent

from service.api.dependencies import ManagerDependency
from service.api.errors import ErrorBody, error_answer
from service.report.json_report import build_report
from service.report.report import Report
from service.runs.events import EventType, RunEvent
from service.runs.manager import RunManager
from service.runs.model import Run, RunStatus
from service.spec.faults import Fault
from service.spec.spec import RunSpec

KEEP_ALIVE_SECONDS = 15
MAX_LISTED = 1000
_LONGEST_EVENT_ID = 20
_DEFAULT_SPEC = RunSpec()

router = APIRouter(prefix="/v1/runs", tags=["runs"])


class RunView(Run):
    """A run, and where to go from it."""

    links: dict[str, str] = Field(description="Paths of `self`, `events`, `report`, and of `cancel` while it runs.")


class RunList(BaseModel):
    """Runs, the last created first."""

    runs: list[RunView]


def view(run: Run) -> RunView:
    path = f"{router.prefix}/{run.id}"
    links = {"self": path, "events": f"{path}/events", "report": f"{path}/report"}
    if not run.status.ended:
        links["cancel"] = f"{path}/cancel"
    return RunView.model_construct(**dict(run), links=links)


@router.post(
    "", status_code=201, responses={413: {"model": ErrorBody}, 422: {"model": ErrorBody}, 503: {"model": ErrorBody}}
)
async def create_run(manager: ManagerDependency, response: Response, spec: RunSpec = _DEFAULT_SPEC) -> RunView:
    """Check a spec and put a run of it at the end of the queue. No body is the default spec, as `{}` is."""
    created = view(await manager.submit(spec))
    response.headers["Location"] = created.links["self"]
    return created


@router.get("")
async def list_runs(
    manager: ManagerDependency,
    limit: Annotated[int, Query(ge=1, le=MAX_LISTED)] = 100,
    status: RunStatus | None = None,
) -> RunList:
    """Runs, the last created first."""
    return RunList(runs=[view(run) for run in await manager.list(limit=limit, status=status)])


@router.get("/{run_id}", responses={404: {"model": ErrorBody}})
async def show_run(run_id: str, manager: ManagerDependency) -> RunView:
    """One run, with what has been measured so far."""
    return view(await manager.get(run_id))


@router.post("/{run_id}/cancel", status_code=202, responses={404: {"model": ErrorBody}, 409: {"model": ErrorBody}})
async def cancel_run(run_id: str, manager: ManagerDependency) -> RunView:
    """Ask for a run to stop. It ends a little later; one that still waits ends at once."""
    return view(await manager.cancel(run_id))


@router.get(
    "/{run_id}/report",
    response_model=Report,
    responses={404: {"model": ErrorBody}, 406: {"model": ErrorBody}, 409: {"model": ErrorBody}},
)
async def show_report(
    run_id: str, manager: ManagerDependency, accept: Annotated[str, Header()] = "*/*"
) -> JSONResponse:
    """The report of a run that has ended."""
    if not _accepts_json(accept):
        return _not_acceptable("Accept", accept)
    return await _report(run_id, manager)


@router.get(
    "/{run_id}/report.{suffix}",
    response_model=Report,
    responses={404: {"model": ErrorBody}, 406: {"model": ErrorBody}, 409: {"model": ErrorBody}},
)
async def show_report_file(run_id: str, suffix: str, manager: ManagerDependency) -> JSONResponse:
    """The report of a run that has ended, in the format of the suffix."""
    return await _report(run_id, manager) if suffix == "json" else _not_acceptable("suffix", suffix)


@router.get("/{run_id}/events", responses={204: {"description": "nothing follows the last event"}, 404: {}})
async def watch_run(run_id: str, manager: ManagerDependency, last_event_id: Annotated[str, Header()] = "") -> Response:
    """What happens in a run, as Server-Sent Events: from its start, or after the event in `Last-Event-ID`."""
    after = int(last_event_id) if last_event_id.isdecimal() and len(last_event_id) < _LONGEST_EVENT_ID else 0
    if await manager.nothing_follows(run_id, after):
        return Response(status_code=204)  # which tells a browser's EventSource not to come back
    return EventSourceResponse(_stream(manager, run_id, after), ping=KEEP_ALIVE_SECONDS)


async def _stream(manager: RunManager, run_id: str, after: int) -> AsyncIterator[ServerSentEvent]:
    async for event in manager.events(run_id, after):
        yield ServerSentEvent(id=str(event.id), event=event.type.value, data=json.dumps(_event_data(event)))


def _event_data(event: RunEvent) -> dict[str, Any]:
    if event.type is EventType.FINISHED:
        return view(event.run).model_dump(mode="json")
    data = {"run_id": event.run.id, "at": event.at.isoformat()}
    if event.detail is not None:
        return {**data, **event.detail.model_dump(mode="json")}
    return {**data, **event.run.model_dump(mode="json", include={"status", "detail", "engine"})}


async def _report(run_id: str, manager: RunManager) -> JSONResponse:
    run = await manager.get(run_id)
    if not run.status.ended:
        message = f"run {run_id} has not ended, it is {run.status.value}: its report comes with its end"
        return error_answer(409, [Fault(field="run_id", value=run_id, message=message)])
    return JSONResponse(build_report(run))


def _accepts_json(accept: str) -> bool:
    kinds = {kind.split(";")[0].strip().lower() for kind in accept.split(",")}
    return bool(kinds & {"*/*", "application/*", "application/json", ""})


def _not_acceptable(field: str, value: str) -> JSONResponse:
    message = "reports come as JSON; allowed: Accept: application/json, or the suffix .json"
    return error_answer(406, [Fault(field=field, value=value, message=message)])
