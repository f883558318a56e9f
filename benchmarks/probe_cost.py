"""What the probe costs: decode steps a second with it and without, in turn, on two servers of one release.

    python -m benchmarks.probe_cost --seconds 100

See README.md beside this file for how to read what it prints.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.to_thread

from benchmarks.pair import Batch, Cost, RoundFailed, Server, serving
from benchmarks.paired import ORDER, Interval, block_ratios, median_interval
from service.engine.installation import Engine, EngineError
from service.engine.overlay import write_overlay
from service.engine.registry import DEFAULT_RELEASE, EngineRegistry
from service.home import Home
from service.plugin.settings import Profile

TARGET = 0.99
_START_SECONDS = 240.0
_HOOK_SECONDS = 120.0
_WARM_UP_ROUNDS = 2
_MICRO = 1e6


async def measure(engine: Engine, folder: Path, batch: Batch, seconds: float) -> tuple[list[Cost], list[Cost]]:
    """Rounds with the probe and rounds without, in whole blocks of ORDER, for about `seconds`."""
    async with contextlib.AsyncExitStack() as servers:
        sides: list[Server] = []
        for probe in (True, False):
            with anyio.fail_after(_START_SECONDS):
                context = serving(engine, folder / ("with" if probe else "without"), batch, probe=probe)
                sides.append(await servers.enter_async_context(context))
            print(f"server {'with' if probe else 'without'} the probe is ready", file=sys.stderr)
        for _ in range(_WARM_UP_ROUNDS):
            for server in sides:
                await server.round(batch)
        costs: tuple[list[Cost], list[Cost]] = ([], [])
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            for side in ORDER:
                index = ORDER.index(side)
                costs[index].append(await sides[index].round(batch))
        return costs


def hook_seconds(engine: Engine, folder: Path, batch: Batch) -> float:
    """Seconds of CPU time that the hook alone takes in a decode step."""
    overlay = write_overlay(folder / "overlay", Profile.REHEARSAL)
    script = Path(__file__).with_name("hook_alone.py")
    answer = subprocess.run(
        [engine.python, script, str(batch.rows), str(batch.pages())],
        env={**os.environ, "PYTHONPATH": str(overlay), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        timeout=_HOOK_SECONDS,
        check=True,
    )
    return float(json.loads(answer.stdout)) / 1e9


def describe(probed: Sequence[Cost], bare: Sequence[Cost], hook: float) -> str:
    """What is printed at the end. Ratios are of speeds, with the probe to without: 1 is no cost."""
    lines = [
        f"{len(probed)} rounds on each side, in blocks of {ORDER}; ratios are medians of blocks with their "
        f"{median_interval(block_ratios([1.0] * len(probed), [1.0] * len(bare))).confidence:.0%} interval",
        "",
        f"{'':34}{'with':>10}{'without':>10}{'ratio':>9}",
        _row("decode steps a second", [cost.wall for cost in probed], [cost.wall for cost in bare]),
        _row("  by the scheduler's CPU time", [cost.cpu for cost in probed], [cost.cpu for cost in bare]),
    ]
    step = statistics.median(cost.cpu for cost in bare)
    lines += [
        "",
        f"hook alone: {hook * _MICRO:.1f} us a step, of {step * _MICRO:.0f} us of the scheduler's CPU time: "
        f"ratio {step / (step + hook):.4f}",
    ]
    return "\n".join(lines)


def _row(name: str, probed: Sequence[float], bare: Sequence[float]) -> str:
    ratio = median_interval(block_ratios(probed, bare))
    speeds = f"{1 / statistics.median(probed):>10.1f}{1 / statistics.median(bare):>10.1f}"
    return f"{name:34}{speeds}{ratio.median:>9.4f}  [{ratio.low:.4f}, {ratio.high:.4f}]  {_judge(ratio)}"


def _judge(ratio: Interval) -> str:
    if ratio.low >= TARGET:
        return f"at least {TARGET}"
    return f"below {TARGET}" if ratio.high < TARGET else f"too noisy to tell from {TARGET}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.probe_cost", description="What the probe costs.")
    parser.add_argument("--engine", default=DEFAULT_RELEASE, help="engine by name (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=100.0, help="time of the rounds (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=16, help="batch rows (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=400, help="decode steps a round (default: %(default)s)")
    arguments = parser.parse_args()
    batch = Batch(arguments.rows, arguments.steps)
    try:
        engine = EngineRegistry(Home.default()).get(arguments.engine)
        with tempfile.TemporaryDirectory(prefix="lastpage-bench-") as name:
            folder = Path(name)
            hook = hook_seconds(engine, folder, batch)
            probed, bare = anyio.run(measure, engine, folder, batch, arguments.seconds)
    except (EngineError, RoundFailed, TimeoutError, subprocess.SubprocessError) as error:
        print(f"probe_cost: {error or type(error).__name__}", file=sys.stderr)
        return 1
    print(describe(probed, bare, hook))
    return 0


if __name__ == "__main__":
    sys.exit(main())
