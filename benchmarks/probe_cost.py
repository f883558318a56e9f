"""What the probe costs: decode steps a second with it and without, in turn, on one real server.

    python -m benchmarks.probe_cost --seconds 120

See README.md beside this file for how to read what it prints.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import anyio

from benchmarks.interval import Interval, median_interval
from benchmarks.switched_server import Batch, Round, measure
from service import event_loop
from service.engine.installation import Engine
from service.engine.overlay import write_overlay
from service.engine.registry import DEFAULT_RELEASE, EngineRegistry
from service.errors import EngineError
from service.home import Home
from service.plugin.settings import Profile

TARGET = 0.99
_HOOK_ALONE = Path(__file__).with_name("hook_alone.py")
_HOOK_ALONE_SECONDS = 180.0
# Starting and stopping the server come on top of the time that is asked for.
_SERVER_SECONDS = 360.0
_MICRO = 1e6


def hook_alone(engine: Engine, folder: Path, batch: Batch) -> float:
    """Seconds of CPU time that the hook by itself takes in a decode step.

    Raises:
        EngineError: it could not be measured.
    """
    overlay = write_overlay(folder / "overlay", Profile.REHEARSAL)
    try:
        answer = subprocess.run(
            [engine.python, _HOOK_ALONE, str(batch.rows), str(batch.pages)],
            env={**os.environ, "PYTHONPATH": str(overlay), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            timeout=_HOOK_ALONE_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise EngineError(f"the hook alone could not be measured: {error}") from error
    return float(json.loads(answer.stdout)) / 1e9


def describe(rounds: Sequence[Round], hook: float) -> str:
    """What is printed at the end. Ratios are of speeds, with the probe to without: 1 is no cost."""
    if not rounds:
        return "no round of turns was completed; give it more --seconds or more --steps"
    wall, cpu = [each.wall for each in rounds], [each.cpu for each in rounds]
    confidence = median_interval([1.0] * len(rounds)).confidence
    step = statistics.median(without for _, without in cpu)
    return "\n".join(
        [
            f"{len(rounds)} rounds; a ratio is the median over the rounds, with its {confidence:.1%} interval",
            "",
            f"{'decode steps a second':30}{'with':>8}{'without':>9}{'ratio':>9}",
            _row("by the clock", wall),
            _row("by the scheduler's CPU time", cpu),
            "",
            f"the hook alone: {hook * _MICRO:.1f} us of CPU time a step, where a step takes {step * _MICRO:,.0f} us: "
            f"ratio {step / (step + hook):.4f}",
        ]
    )


def _row(name: str, costs: Sequence[tuple[float, float]]) -> str:
    ratio = median_interval([without / probed for probed, without in costs])
    speeds = [1 / statistics.median(side) for side in zip(*costs, strict=True)]
    return (
        f"{name:30}{speeds[0]:>8.1f}{speeds[1]:>9.1f}{ratio.median:>9.4f}  "
        f"[{ratio.low:.4f}, {ratio.high:.4f}]  {_judge(ratio)}"
    )


def _judge(ratio: Interval) -> str:
    if ratio.low >= TARGET:
        return f"at least {TARGET}"
    return f"below {TARGET}" if ratio.high < TARGET else f"too noisy to tell from {TARGET}"


async def _measure(engine: Engine, folder: Path, batch: Batch, seconds: float) -> list[Round]:
    with anyio.fail_after(seconds + _SERVER_SECONDS):
        return await measure(engine, folder, batch, seconds, _say)


def _say(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.probe_cost", description="What the probe costs.")
    parser.add_argument("--engine", default=DEFAULT_RELEASE, help="engine by name (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=120.0, help="time under load (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=16, help="batch rows (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=400, help="decode steps of a batch (default: %(default)s)")
    arguments = parser.parse_args()
    batch = Batch(arguments.rows, arguments.steps)
    try:
        engine = EngineRegistry(Home.default()).get(arguments.engine)
        with tempfile.TemporaryDirectory(prefix="lastpage-probe-cost-") as folder:
            hook = hook_alone(engine, Path(folder), batch)
            rounds = event_loop.run(_measure, engine, Path(folder), batch, arguments.seconds)
    except (EngineError, TimeoutError) as error:
        print(f"probe_cost: {error or 'the server took too long'}", file=sys.stderr)
        return 1
    print(describe(rounds, hook))
    return 0


if __name__ == "__main__":
    sys.exit(main())
