"""`mixed` on a real server: it does with every volley what the model of its scheduler told beforehand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loadgen.sglang.pages import Pool
from loadgen.sglang.scheduler import Scheduler
from loadgen.sglang.shape import Shape
from loadgen.sglang.steps import ObservedStep
from service.plugin.flight_reader import FlightReader
from tests.real.soaks import soak

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

POOL = Pool(128, 32)


def told(step: ObservedStep) -> tuple[int, ...]:
    return (step.batch_size, step.need, step.free, step.trailing, step.prefill_batches, step.retractions)


@pytest.mark.parametrize("overlap", [True, False], ids=["overlap", "no-overlap"])
def test_every_volley_makes_the_very_steps_that_were_foreseen(tmp_path: Path, overlap: bool) -> None:
    arguments = [] if overlap else ["--engine-arg", "--disable-overlap-schedule"]
    ended = soak(
        tmp_path, "--scenario", "mixed", "--engine", "0.5.23", "--duration", "15s", "--min-critical", "1", *arguments
    )
    assert ended.exit_code == 0, ended.output
    scheduler = Scheduler(POOL, overlap=overlap)
    # The last one may not have come to its end.
    for line in (tmp_path / "plan.jsonl").read_text().splitlines()[:-1]:
        for request in json.loads(line)["requests"]:
            scheduler.submit(Shape(request["prompt_tokens"], request["max_new_tokens"]))
        while not scheduler.idle:
            scheduler.iterate()
    foreseen = [told(step) for step in scheduler.steps]
    assert foreseen
    seen = [told(step) for step in FlightReader(tmp_path / "flight.bin").steps()]
    # Before the load come the steps of the readiness check, and of witnesses without pressure.
    assert any(seen[first : first + len(foreseen)] == foreseen for first in range(len(seen)))
