"""Stands in for a controller that dies: starts a fake engine in FOLDER, prints its token, and waits for its end."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import anyio

from service.engine.process.process import EngineProcess
from tests.engine.process.launches import children_of, fake_plan


async def main(folder: Path, grace_seconds: float) -> None:
    plan = replace(fake_plan(folder, "family"), grace_seconds=grace_seconds)
    async with await EngineProcess.start(plan) as process:
        children_of(folder)
        print(plan.token, process.pid, flush=True)
        await process.wait()


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), float(sys.argv[2]))
