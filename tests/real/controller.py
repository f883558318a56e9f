"""A controller that dies: launches a real engine in FOLDER, prints what to look for when it is ready, and waits."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import anyio

from service.engine.process.process import EngineProcess
from service.engine.process.readiness import wait_ready
from tests.real.launches import rehearsal_plan


async def main(folder: Path, grace_seconds: float) -> None:
    plan = replace(rehearsal_plan(folder), grace_seconds=grace_seconds)
    async with await EngineProcess.start(plan) as process:
        ready = await wait_ready(plan, process)
        print(plan.token, plan.port, process.pid, ready.scheduler_pid, flush=True)
        await process.wait()


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), float(sys.argv[2]))
