"""What the load generator itself costs: its CPU time a request, against SGLang's bench_serving.

    python -m benchmarks.client_cost --rounds 20

See README.md beside this file for how to read what it prints.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from benchmarks import bench_serving_load
from benchmarks.client_load import Job
from benchmarks.interval import Interval, median_interval
from service.engine.registry import DEFAULT_RELEASE, EngineRegistry
from service.engine.tiny_model import write_tiny_model
from service.errors import EngineError
from service.home import Home
from service.plugin.settings import Profile

TARGET = 0.5
OURS, PEER = "lastpage", "bench_serving"
_TREE = Path(__file__).parents[1]
_MILLI = 1e3


@dataclass(frozen=True)
class Costs:
    """CPU time a request in one round, in seconds, of both load generators, streamed and not."""

    streamed: Mapping[str, float]
    whole: Mapping[str, float]


class Worker:
    """A process that runs one load after the other, and tells the CPU time that each took it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._in: IO[str] = process.stdin
        self._out: IO[str] = process.stdout

    def cpu_seconds(self, job: Mapping[str, Any]) -> float:
        """Run a job.

        Raises:
            EngineError: not all of its requests ended with all of their tokens.
        """
        self._in.write(json.dumps(job) + "\n")
        self._in.flush()
        line = self._out.readline()
        if not line:
            raise EngineError("a load generator ended before its time; what it said stands above")
        told = json.loads(line)
        if (told["done"], told["new_tokens"]) != (job["requests"], job["requests"] * job["new_tokens"]):
            raise EngineError(
                f"of {job['requests']} requests {told['done']} ended well, {told['new_tokens']} tokens came"
            )
        seconds: float = told["cpu_seconds"]
        return seconds

    def cost(self, job: Job, few: int, extra: Mapping[str, Any]) -> float:
        """CPU seconds a request: the difference of a small load and a large one, without what comes once."""
        small, large = ({**dataclasses.asdict(job), **extra, "requests": count} for count in (few, job.requests + few))
        return (-self.cpu_seconds(small) + self.cpu_seconds(large)) / job.requests


def measure(python: Path, model: Path, job: Job, rounds: int, step_seconds: float) -> Iterator[Costs]:
    """Run both load generators in turn on the same null server, as often as asked for.

    Args:
        python: interpreter of an engine, for its bench_serving.
        model: folder with a tokenizer, for bench_serving.
        job: the load; `url` and `streamed` are set here.
        step_seconds: time between two tokens of a stream.

    Raises:
        EngineError: a load generator failed.
    """
    module = [sys.executable, "-m"]
    with (
        _process([*module, "benchmarks.null_server", "--step-seconds", str(step_seconds)]) as server,
        _process([*module, "benchmarks.client_load"]) as ours,
        _process([str(python), str(bench_serving_load.__file__)]) as peer,
    ):
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}"
        workers = {OURS: (Worker(ours), {}), PEER: (Worker(peer), {"model": str(model)})}
        for number in range(rounds):
            order = [OURS, PEER] if number % 2 == 0 else [PEER, OURS]
            costs: dict[bool, dict[str, float]] = {True: {}, False: {}}
            for streamed, cost in costs.items():
                load = dataclasses.replace(job, url=url, streamed=streamed)
                for name in order:
                    worker, extra = workers[name]
                    cost[name] = worker.cost(load, few=job.at_once, extra=extra)
            yield Costs(streamed=costs[True], whole=costs[False])


@contextlib.contextmanager
def _process(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": str(_TREE), "HF_HUB_OFFLINE": "1", "NO_PROXY": "127.0.0.1"}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def describe(rounds: Sequence[Costs], job: Job) -> str:
    """What is printed at the end. Ratios are of CPU time a request, ours to theirs."""
    confidence = median_interval([1.0] * len(rounds)).confidence
    streams, wholes = [each.streamed for each in rounds], [each.whole for each in rounds]
    return "\n".join(
        [
            f"{len(rounds)} rounds; a ratio is the median over the rounds, with its {confidence:.1%} interval",
            f"requests of {job.prompt_tokens} and {job.new_tokens} tokens, {job.at_once} at once",
            "",
            f"{'CPU time a request, ms':44}{OURS:>9}{PEER:>15}{'ratio':>8}",
            _row("streamed, a chunk a token", streams, streams),
            _row(f"batch calls of {job.batch} / calls not streamed", wholes, wholes),
            _row(f"batch calls of {job.batch} / streamed, its default", wholes, streams),
        ]
    )


def _row(name: str, ours: Sequence[Mapping[str, float]], peers: Sequence[Mapping[str, float]]) -> str:
    pairs = [(own[OURS], peer[PEER]) for own, peer in zip(ours, peers, strict=True)]
    ratio = median_interval([own / peer for own, peer in pairs])
    own, peer = (_MILLI * statistics.median(side) for side in zip(*pairs, strict=True))
    return (
        f"{name:44}{own:>9.3f}{peer:>15.3f}{ratio.median:>8.3f}  [{ratio.low:.3f}, {ratio.high:.3f}]  {_judge(ratio)}"
    )


def _judge(ratio: Interval) -> str:
    if ratio.high <= TARGET:
        return f"at most {TARGET}"
    return f"above {TARGET}" if ratio.low > TARGET else f"too noisy to tell from {TARGET}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.client_cost", description="What the client costs.")
    parser.add_argument("--engine", default=DEFAULT_RELEASE, help="engine by name (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=20, help="(default: %(default)s)")
    parser.add_argument("--requests", type=int, default=256, help="measured in a round (default: %(default)s)")
    parser.add_argument("--at-once", type=int, default=32, help="requests open at once (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=8, help="requests in a batch call (default: %(default)s)")
    parser.add_argument("--prompt-tokens", type=int, default=300, help="(default: %(default)s)")
    parser.add_argument("--new-tokens", type=int, default=128, help="(default: %(default)s)")
    parser.add_argument("--step-seconds", type=float, default=0.005, help="between tokens (default: %(default)s)")
    asked = parser.parse_args()
    job = Job("", True, asked.requests, asked.at_once, asked.batch, asked.prompt_tokens, asked.new_tokens)
    rounds: list[Costs] = []
    try:
        engine = EngineRegistry(Home.default()).get(asked.engine)
        with tempfile.TemporaryDirectory(prefix="lastpage-client-cost-") as folder:
            model = write_tiny_model(Path(folder), Profile.REHEARSAL)
            for costs in measure(engine.python, model, job, asked.rounds, asked.step_seconds):
                rounds.append(costs)
                print(f"round {len(rounds)} of {asked.rounds}", file=sys.stderr, flush=True)
    except EngineError as error:
        print(f"client_cost: {error}", file=sys.stderr)
        return 1
    print(describe(rounds, job))
    return 0


if __name__ == "__main__":
    sys.exit(main())
