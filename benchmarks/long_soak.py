"""A soak of hours on a simulated engine, in minutes: what the controller's memory does meanwhile.

    python -m benchmarks.long_soak --hours 12 --pool-pages 4096

It prints the resident memory of the controller and of the engine's process at a tenth of the load and at its end. Until
the tenth what is kept of a run grows to its bounds; from there on it is to stay flat.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from service import event_loop
from service.controller import Controller, build_controller
from service.engine.registry import EngineRegistry
from service.engine.simulated import Simulation
from service.home import Home
from service.plugin.flight_reader import FlightReader
from service.runs.model import Progress, Run
from service.spec.duration import format_duration
from service.spec.parsing import parse_spec
from service.spec.spec import RunSpec

ENGINE = "long-soak"
_MIB = 2**20
_SAMPLE_SECONDS = 2.0
_LINE_SECONDS = 30.0


@dataclass(frozen=True)
class Sample:
    """Resident memory at a moment of the load, bytes."""

    elapsed: float
    controller: int
    engine: int


@dataclass
class Watched:
    """What was seen of the soak."""

    samples: list[Sample] = field(default_factory=list)
    progress_events: int = 0

    def at(self, elapsed: float) -> Sample:
        """The last sample before that time."""
        return max((one for one in self.samples if one.elapsed <= elapsed), key=lambda one: one.elapsed)


def resident_bytes(pid: int) -> int:
    """A process's resident memory; 0 when it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGESIZE")


def main() -> None:
    parser = argparse.ArgumentParser(description="A simulated soak of hours, and the controller's memory.")
    parser.add_argument("--hours", type=float, default=12.0, help="Simulated hours under load.")
    parser.add_argument("--pool-pages", type=int, default=4096)
    parser.add_argument("--scenario", default="ballast")
    parser.add_argument("--time-scale", type=float, default=100.0, help="Simulated seconds in a second.")
    parser.add_argument("--step-seconds", type=float, default=0.5, help="Simulated seconds of a decode step.")
    given = parser.parse_args()
    simulation = Simulation(time_scale=given.time_scale, step_seconds=given.step_seconds)
    spec = parse_spec(
        {
            # Requests of so large a pool take the machine a while to make, in which nothing hangs.
            "engine": {"name": ENGINE, "pool_pages": given.pool_pages, "hang_seconds": 3600},
            "load": {"scenario": given.scenario, "duration": given.hours * 3600, "seed": 1},
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder)).ensure()
        EngineRegistry(home).add_simulated(ENGINE, simulation)
        began = time.monotonic()
        run, watched = event_loop.run(soak, build_controller(home), spec)
        tell(run, watched, time.monotonic() - began)


async def soak(controller: Controller, spec: RunSpec) -> tuple[Run, Watched]:
    """Carry the soak out, taking samples."""
    watched = Watched()
    next_sample = next_line = 0.0
    async with controller.manager.started() as manager:
        run = await manager.submit(spec)
        async for event in manager.events(run.id):
            if not isinstance(event.detail, Progress):
                continue
            watched.progress_events += 1
            if time.monotonic() < next_sample:
                continue
            next_sample = time.monotonic() + _SAMPLE_SECONDS
            watched.samples.append(sample := take(event.run, event.detail.elapsed_seconds))
            if time.monotonic() >= next_line:
                next_line = time.monotonic() + _LINE_SECONDS
                steps = event.detail.measures.decode_steps
                print(f"{format_duration(sample.elapsed):>10} {steps:>9,} decode steps, {memory(sample)}", flush=True)
        ended = await manager.wait(run.id)
        # The engine is gone by now.
        engine = watched.samples[-1].engine
        watched.samples.append(Sample(ended.measures.seconds_under_load, resident_bytes(os.getpid()), engine))
        return ended, watched


def take(run: Run, elapsed: float) -> Sample:
    """A sample."""
    reader = FlightReader(run.folder / "flight.bin")
    pid = reader.identity.pid
    reader.close()
    return Sample(elapsed, resident_bytes(os.getpid()), resident_bytes(pid))


def memory(sample: Sample) -> str:
    """A sample in words."""
    return f"controller {sample.controller / _MIB:,.0f} MiB, engine {sample.engine / _MIB:,.0f} MiB"


def tell(run: Run, watched: Watched, seconds: float) -> None:
    """Print what was seen."""
    measures = run.measures
    early, last = watched.at(measures.seconds_under_load / 10), watched.samples[-1]
    requests = sum(measures.requests.values())
    print(
        f"\n{run.spec.load.scenario} on {run.spec.engine.pool_pages:,} pages, simulated: "
        f"{format_duration(measures.seconds_under_load)} under load in {seconds / 60:.1f} minutes\n"
        f"{measures.decode_steps:,} decode steps, {measures.critical_share:.1%} critical, {requests:,} requests, "
        f"{watched.progress_events:,} progress events, {measures.load_restarts:,} load restarts\n"
        f"at a tenth of it: {memory(early)}\n"
        f"at its end:       {memory(last)}\n"
        f"controller, end against a tenth: {last.controller / early.controller:.3f}\n"
        f"verdict {run.verdict.value if run.verdict else 'none'} (simulated): {'; '.join(run.reasons)}"
    )


if __name__ == "__main__":
    main()
