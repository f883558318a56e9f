"""The load of `client_cost.py` by the project's own load generator: a process that runs one job a line, in turn.

What it runs is what a soak runs: a scenario, the driver, the prompts, the client and the tally. Only the recorder of a
server is missing, as there is none.
"""

from __future__ import annotations

import json
import math
import resource
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import anyio

from loadgen.driver import Driver
from loadgen.http.client import GenerateClient
from loadgen.requests.outcome import RequestOutcome
from loadgen.requests.prompts import PromptMaker
from loadgen.requests.wave import Wave
from loadgen.scenarios import NoOptions, Observation, Scenario
from loadgen.sglang.pages import Pool
from loadgen.sglang.server import ServerConfiguration
from loadgen.sglang.shape import Shape
from loadgen.sglang.steps import ObservedStep
from service import event_loop

_VOCABULARY = 256
_LOOK_SECONDS = 0.01


@dataclass(frozen=True)
class Job:
    """One load: so many equal requests, so many of them at once.

    Attributes:
        batch: requests sent together in one call where they are not streamed.
    """

    url: str
    streamed: bool
    requests: int
    at_once: int
    batch: int
    prompt_tokens: int
    new_tokens: int


class ClosedLoop(Scenario[NoOptions]):
    """Sends a job's requests, the next as soon as there is room for them among those that are open."""

    name = "closed-loop"
    summary = "A fixed number of equal requests, a fixed number of them at once"

    def __init__(self, job: Job) -> None:
        super().__init__(ServerConfiguration(Pool(2, 2)), NoOptions(), seed=0)
        self._job = job
        self._left = job.requests

    @classmethod
    def longest_request(cls, pool: Pool, options: NoOptions) -> int:
        return pool.tokens

    def next_wave(self, seen: Observation) -> Wave:
        room = min(self._job.at_once - seen.open_requests, self._left)
        count = room if self._job.streamed else min(room, self._job.batch)
        if count < min(self._job.batch, self._left) and not self._job.streamed:
            return Wave()
        self._left -= count
        return Wave.of([Shape(self._job.prompt_tokens, self._job.new_tokens)] * count, streamed=self._job.streamed)


class _NoSteps:
    def take(self) -> Sequence[ObservedStep]:
        return ()


def cpu_seconds() -> float:
    """CPU time of this process so far, of its threads too."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def run(job: Job) -> dict[str, Any]:
    """Carry a job out: what it cost, and how many requests and new tokens ended well."""
    began = cpu_seconds()
    client = GenerateClient(job.url)
    driver = Driver(ClosedLoop(job), client, _NoSteps(), PromptMaker(0, range(_VOCABULARY)))
    async with anyio.create_task_group() as group:
        group.start_soon(driver.run, math.inf)
        while driver.tally.outcomes.total() < job.requests:  # noqa: ASYNC110
            await anyio.sleep(_LOOK_SECONDS)
        group.cancel_scope.cancel()
    done = driver.tally.outcomes[RequestOutcome.DONE]
    return {"cpu_seconds": cpu_seconds() - began, "done": done, "new_tokens": driver.tally.new_tokens}


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(event_loop.run(run, Job(**json.loads(line)))), flush=True)


if __name__ == "__main__":
    main()
