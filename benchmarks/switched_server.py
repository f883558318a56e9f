"""A server whose probe is turned on and off by `switch.py`, and the load on it."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import switch
from loadgen.http.client import GenerateClient, GenerateRequest
from loadgen.requests.outcome import RequestOutcome
from service.engine.installation import Engine
from service.engine.overlay import write_overlay
from service.engine.process.command import LaunchPlan, plan_launch
from service.engine.process.ports import free_port
from service.engine.process.process import EngineProcess
from service.engine.process.readiness import wait_ready
from service.engine.tiny_model import VOCABULARY, write_tiny_model
from service.errors import EngineError
from service.plugin.flight_reader import FlightReader
from service.plugin.settings import Profile

_PAGE_SIZE = 128
_PROMPT_TOKENS = 8
_MODULE = "lastpage_switch"
# Between these the share of steps that the probe has seen must be: it misses half of the steps in whole rounds.
_SHARE_SEEN = (0.4, 0.7)


class BatchFailed(EngineError):
    """A request did not end as asked for."""


@dataclass(frozen=True)
class Batch:
    """A decode batch: `rows` requests, sent together, each for `steps` decode steps."""

    rows: int
    steps: int

    @property
    def pages(self) -> int:
        """A pool in which it runs with as much again to spare."""
        return 2 * self.rows * (1 + (_PROMPT_TOKENS + self.steps) // _PAGE_SIZE)

    def requests(self) -> list[GenerateRequest]:
        prompts = [[(row + place) % VOCABULARY for place in range(_PROMPT_TOKENS)] for row in range(self.rows)]
        # The first new token comes out of the prefill.
        return [GenerateRequest(prompt, self.steps + 1) for prompt in prompts]


@dataclass(frozen=True)
class Round:
    """What a decode step took in one round of turns, with the probe and without, in seconds.

    Attributes:
        wall: from step to step.
        cpu: of the scheduler's CPU time.
    """

    wall: tuple[float, float]
    cpu: tuple[float, float]


async def measure(
    engine: Engine, folder: Path, batch: Batch, seconds: float, report: Callable[[str], None]
) -> list[Round]:
    """Send the batch again and again for so many seconds. The server is gone at the end, whatever happens.

    Raises:
        EngineError: the server does not come up, a request fails, or the probe was not turned off and on.
    """
    records = folder / "records.jsonl"
    plan = _plan(engine, folder, batch, records)
    async with await EngineProcess.start(plan) as process:
        await wait_ready(plan, process)
        report("the server is ready")
        batches = await _send(plan.url, batch, seconds)
    seen = FlightReader(plan.flight).totals().decode_steps / (batches * batch.steps)
    report(
        f"{batches} batches of {batch.rows} rows and {batch.steps} decode steps; the probe saw {seen:.0%} of the steps"
    )
    if not _SHARE_SEEN[0] <= seen <= _SHARE_SEEN[1]:
        raise EngineError(f"the probe saw {seen:.0%} of the decode steps, half of them were expected")
    return [_round(line) for line in records.read_text().splitlines()]


async def _send(url: str, batch: Batch, seconds: float) -> int:
    client = GenerateClient(url)
    ends = time.monotonic() + seconds
    batches = 0
    while time.monotonic() < ends:
        for completion in await client.send_together(batch.requests()):
            if completion.outcome is not RequestOutcome.DONE:
                raise BatchFailed(f"a request ended as {completion.outcome.value}: {completion.detail}")
        batches += 1
    return batches


def _plan(engine: Engine, folder: Path, batch: Batch, records: Path) -> LaunchPlan:
    return plan_launch(
        python=engine.python,
        profile=Profile.REHEARSAL,
        model=write_tiny_model(folder / "models", Profile.REHEARSAL),
        tiny_model=True,
        folder=folder,
        overlay=write_overlay(folder / "overlay", Profile.REHEARSAL),
        port=free_port(),
        seed=1,
        page_size=_PAGE_SIZE,
        pool_pages=batch.pages,
        user_arguments=("--disable-radix-cache",),
        inherited={
            **{name: value for name, value in os.environ.items() if name != "SGLANG_PLUGINS"},
            "PYTHONPATH": str(_write_switch(folder / "switch")),
            switch.RECORDS_VARIABLE: str(records),
        },
    )


def _write_switch(folder: Path) -> Path:
    """The switch as SGLang finds plugins: a module, and a distribution with an entry point."""
    info = folder / f"{_MODULE}-1.dist-info"
    info.mkdir(parents=True)
    shutil.copyfile(switch.__file__, folder / f"{_MODULE}.py")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {_MODULE}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[sglang.srt.plugins]\n{_MODULE} = {_MODULE}:register\n")
    return folder


def _round(line: str) -> Round:
    record = json.loads(line)
    probed, bare = record["with"], record["without"]
    return Round(wall=(probed["wall"], bare["wall"]), cpu=(probed["cpu"], bare["cpu"]))
