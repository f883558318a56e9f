"""Whole runs on simulated engines, within this process: launched, loaded, watched, judged and reported as any other."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from service.controller import Controller, build_controller
from service.engine.registry import EngineRegistry
from service.engine.simulated import Simulation
from service.home import Home
from service.plugin.flight_reader import FlightReader
from service.runs.events import RunEvent
from service.runs.model import Crash, Finding, Progress, Run, RunStatus
from service.spec.parsing import parse_spec

# Before the load an engine makes about so many decode steps, to be calibrated.
UNDER_LOAD = 700
FAST = {"time_scale": 20.0, "step_seconds": 0.02}

Meddle = Callable[[Controller, RunEvent], Awaitable[None]]


@dataclass
class Ended:
    """A run that has ended, and what was announced on the way."""

    run: Run
    events: list[RunEvent] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.run.folder

    @property
    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads((self.folder / "report.json").read_text())
        return report

    @property
    def crash(self) -> Crash:
        """The one crash."""
        (crash,) = self.run.crashes
        return crash

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.run.findings

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The decode steps that were kept of a crash, oldest first."""
        return [json.loads(line) for line in (self.folder / "steps.jsonl").read_text().splitlines()]

    @property
    def log(self) -> str:
        return (self.folder / "engine.log").read_text()


async def carry_out(
    home: Home, spec: dict[str, Any] | None = None, meddle: Meddle | None = None, **simulation: Any
) -> Ended:
    """Carry out a run on a simulated engine with these settings.

    Args:
        meddle: called with each event.
    """
    EngineRegistry(home.ensure()).add_simulated("sim", Simulation.of({**FAST, **simulation}))
    given: dict[str, Any] = {"thresholds": ["critical_steps >= 1"], **(spec or {})}
    given["engine"] = {"name": "sim", **given.get("engine", {})}
    given["load"] = {"duration": "8s", "seed": 11, **given.get("load", {})}
    controller = build_controller(home)
    events = []
    async with controller.manager.started() as manager:
        run = await manager.submit(parse_spec(given))
        async for event in manager.events(run.id):
            events.append(event)
            if meddle is not None:
                await meddle(controller, event)
        return Ended(await manager.wait(run.id), events)


def scheduler_pid(run: Run) -> int:
    """The process that writes a run's recording."""
    reader = FlightReader(run.folder / "flight.bin")
    pid = reader.identity.pid
    reader.close()
    return pid


def at_the_edge(event: RunEvent) -> bool:
    """Whether the load has reached the edge by now."""
    running = event.run.status is RunStatus.RUNNING
    return running and isinstance(event.detail, Progress) and event.detail.measures.critical_steps > 0
