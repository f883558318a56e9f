"""Prometheus HTTP service discovery: where the controller's and the running engine's metrics are."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import BaseModel

from service.api.dependencies import ManagerDependency
from service.api.engine_metrics import ENGINE_METRICS_PATH, live_runs
from service.runs.model import Run

CONTROLLER_JOB = "lastpage"
ENGINE_JOB = "sglang"

router = APIRouter(prefix="/v1/targets", tags=["targets"])


class TargetGroup(BaseModel):
    """A group of targets, as http_sd_configs reads them."""

    targets: list[str]
    labels: dict[str, str]


@router.get("")
async def list_targets(request: Request, manager: ManagerDependency) -> list[TargetGroup]:
    """The controller, and every engine that serves, both under the address that the controller was asked at.

    An engine is scraped through the controller, because it listens on 127.0.0.1 only; `__metrics_path__` and
    `__param_run` say which one. They are Prometheus's own words, and do not become labels of the series.
    """
    address = request.url.netloc
    controller = TargetGroup(targets=[address], labels={"job": CONTROLLER_JOB})
    return [controller, *(_engine_group(address, run) for run in await live_runs(manager))]


def _engine_group(address: str, run: Run) -> TargetGroup:
    engine = run.engine
    assert engine is not None
    labels = {
        "__metrics_path__": ENGINE_METRICS_PATH,
        "__param_run": run.id,
        "job": ENGINE_JOB,
        "run_id": run.id,
        "scenario": run.spec.load.scenario,
        "engine": engine.name,
        "sglang_version": engine.sglang_version,
        "allocator": engine.allocator.value,
        "profile": engine.profile.value,
    }
    return TargetGroup(targets=[address], labels=labels)
