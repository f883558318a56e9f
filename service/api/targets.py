"""Prometheus HTTP service discovery: where the controller's and the running engine's metrics are."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import BaseModel

from service.api.dependencies import ManagerDependency
from service.runs.model import Run, RunStatus

router = APIRouter(prefix="/v1/targets", tags=["targets"])


class TargetGroup(BaseModel):
    """A group of targets, as http_sd_configs reads them."""

    targets: list[str]
    labels: dict[str, str]


@router.get("")
async def list_targets(request: Request, manager: ManagerDependency) -> list[TargetGroup]:
    """The controller, under the address it was asked at, and the engine that runs."""
    running = [run for status in (RunStatus.RUNNING, RunStatus.DRAINING) for run in await manager.list(status=status)]
    controller = TargetGroup(targets=[request.url.netloc], labels={"job": "lastpage"})
    return [controller, *(group for run in running if (group := _engine_group(run)))]


def _engine_group(run: Run) -> TargetGroup | None:
    engine = run.engine
    if engine is None or engine.address is None:
        return None
    labels = {
        "job": "sglang",
        "run_id": run.id,
        "scenario": run.spec.load.scenario,
        "engine": engine.name,
        "sglang_version": engine.sglang_version,
        "allocator": engine.allocator.value,
        "profile": engine.profile.value,
    }
    return TargetGroup(targets=[engine.address], labels=labels)
