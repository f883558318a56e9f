"""A real server with the project's own probe and recorder in it, for load that is not the project's own."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from service.engine.installation import Engine
from service.engine.overlay import write_overlay
from service.engine.process.command import LaunchPlan, plan_launch
from service.engine.process.ports import free_port
from service.engine.process.process import EngineProcess
from service.engine.process.readiness import wait_ready
from service.engine.tiny_model import write_tiny_model
from service.execution.recording import Recording
from service.plugin.settings import Profile

_SEED = 1


@dataclass(frozen=True)
class RecordedServer:
    """A server that is up.

    Attributes:
        plan: how it was launched.
        model: folder of its model, with a tokenizer.
        recording: what its flight recorder has seen since it was ready.
    """

    plan: LaunchPlan
    model: Path
    recording: Recording


@contextlib.asynccontextmanager
async def recorded_server(
    engine: Engine,
    folder: Path,
    *,
    page_size: int,
    pool_pages: int,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[RecordedServer]:
    """A server for as long as the block lasts, on a plain CPU with the tiny model.

    Args:
        folder: for its files.
        arguments: more of SGLang's arguments.
        environment: more environment variables.

    Raises:
        EngineError: it does not come up.
    """
    model = write_tiny_model(folder / "models", Profile.REHEARSAL)
    plan = plan_launch(
        python=engine.python,
        profile=Profile.REHEARSAL,
        model=model,
        tiny_model=True,
        folder=folder,
        overlay=write_overlay(folder / "overlay", Profile.REHEARSAL),
        port=free_port(),
        seed=_SEED,
        page_size=page_size,
        pool_pages=pool_pages,
        scenario_environment=environment,
        user_arguments=arguments,
    )
    async with await EngineProcess.start(plan) as process:
        await wait_ready(plan, process)
        yield RecordedServer(plan, model, Recording(plan.flight))
