"""`python -m service.simulation`, with SGLang's arguments: serve a simulated engine until it is ended."""

from __future__ import annotations

import sys

import uvloop

from service.engine.simulated import Event
from service.plugin.recorder import FlightRecorder
from service.simulation.engine import SimulatedEngine
from service.simulation.launch import Launch
from service.simulation.simulated_server import SimulatedServer


def main() -> None:
    """Read what is told by arguments and environment, and serve."""
    launch = Launch.read(sys.argv[1:])
    if any(planted.event is Event.BOOT_FAILURE for planted in launch.simulation.events):
        raise SystemExit("RuntimeError: the simulated engine does not boot, as was planted")
    recorder = FlightRecorder(
        launch.settings.flight,
        page_size=launch.server.pool.page_size,
        pool_pages=launch.server.pool.pages,
        sglang_version=launch.simulation.version,
        allocator=launch.settings.allocator.value,
        clock_ns=launch.clock.now_ns,
    )
    uvloop.run(_serve(launch, recorder))


async def _serve(launch: Launch, recorder: FlightRecorder) -> None:
    await SimulatedServer(launch, SimulatedEngine(launch, recorder)).serve()


if __name__ == "__main__":
    main()
