"""How an engine is launched for a run, what is told of it, and the client that its load is sent by."""

from __future__ import annotations

from pathlib import Path

from loadgen.http.client import GenerateClient, Sampling
from service.engine.overlay import write_overlay
from service.engine.process.command import LaunchPlan, plan_launch
from service.engine.process.ports import HOST, free_port
from service.execution.preflight import Prepared
from service.runs.folder import OVERLAY_FOLDER
from service.runs.model import EngineInfo, EngineRules
from service.runs.server_info import ServerInfo
from service.spec.spec import RunSpec


def plan_for(spec: RunSpec, prepared: Prepared, folder: Path) -> LaunchPlan:
    """Plan the launch of a spec's engine with its files in `folder`, which exists; its overlay is written there.

    Raises:
        OSError: the overlay cannot be written.
    """
    engine, profile, folder = spec.engine, prepared.check.profile, folder.absolute()
    return plan_launch(
        python=prepared.engine.python,
        profile=profile,
        model=prepared.model,
        tiny_model=engine.model is None,
        folder=folder,
        overlay=write_overlay(folder / OVERLAY_FOLDER, profile),
        port=engine.port or free_port(),
        seed=spec.load.seed or 0,
        page_size=engine.page_size,
        pool_pages=engine.pool_pages,
        allocator=engine.allocator,
        scenario_arguments=prepared.needs.arguments,
        scenario_environment=prepared.needs.environment,
        user_arguments=engine.args,
        simulation=prepared.engine.simulation,
    )


def client_of(plan: LaunchPlan, prepared: Prepared) -> GenerateClient:
    """The client of an engine, for load."""
    return GenerateClient(
        plan.url,
        sampling=Sampling(never=prepared.facts.end_tokens),
        incremental_streams=prepared.server.incremental_streams,
        clock=plan.clock,
    )


def engine_info(spec: RunSpec, prepared: Prepared, plan: LaunchPlan) -> EngineInfo:
    """The engine, as the run and its report show it."""
    checked, release = prepared.check, prepared.release
    return EngineInfo(
        name=prepared.engine.name,
        profile=checked.profile,
        sglang_version=checked.version or "unknown",
        rules=EngineRules(release=release.release, assumed=release.assumed),
        allocator=spec.engine.allocator,
        arguments=plan.argv,
        server=ServerInfo.of(prepared.server),
        environment=prepared.needs.environment,
        clamp=checked.clamp,
        device=checked.npu.name,
        address=f"{HOST}:{plan.port}",
        simulation=prepared.engine.simulation,
    )
