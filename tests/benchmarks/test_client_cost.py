"""Claims about the client's benchmark: what comes once is left out, and nothing is said that was not shown."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.bench_serving_load import command_line
from benchmarks.client_cost import OURS, PEER, Costs, Worker, describe
from benchmarks.client_load import Job
from service.errors import EngineError

JOB = Job("http://127.0.0.1:1", True, requests=100, at_once=10, batch=8, prompt_tokens=300, new_tokens=4)


class StandIn:
    """In a load generator's place: a second for itself, and so much a request."""

    def __init__(self, seconds: float, lost: int = 0) -> None:
        self.stdin = io.StringIO()
        self.asked: list[Any] = []
        self.stdout = self
        self._seconds = seconds
        self._lost = lost

    def readline(self) -> str:
        job = json.loads(self.stdin.getvalue().splitlines()[-1])
        self.asked.append(job)
        done = job["requests"] - self._lost
        cost = 1.0 + self._seconds * job["requests"]
        return json.dumps({"cpu_seconds": cost, "done": done, "new_tokens": done * job["new_tokens"]})


def test_what_comes_once_is_not_counted() -> None:
    process: Any = StandIn(0.25)
    assert Worker(process).cost(JOB, few=10, extra={"model": "m"}) == pytest.approx(0.25)
    assert [job["requests"] for job in process.asked] == [10, 110]
    assert process.asked[0]["model"] == "m"


def test_a_load_that_lost_a_request_is_no_measurement() -> None:
    process: Any = StandIn(0.25, lost=1)
    with pytest.raises(EngineError, match="of 10 requests 9 ended well"):
        Worker(process).cost(JOB, few=10, extra={})


@pytest.mark.parametrize(
    ("ours", "said"), [(1.0, "at most 0.5"), (1.6, "above 0.5"), (None, "too noisy to tell from 0.5")]
)
def test_the_target_is_met_only_by_the_whole_interval(ours: float | None, said: str) -> None:
    costs = [1.0, 1.6] * 4 if ours is None else [ours] * 8
    rounds = [Costs(streamed={OURS: cost, PEER: 3.0}, whole={OURS: cost, PEER: 3.0}) for cost in costs]
    rows = describe(rounds, JOB).splitlines()[-3:]
    assert [row.endswith(said) for row in rows] == [True] * 3


def test_both_send_the_same_lengths_and_as_many_at_once() -> None:
    words = command_line({**vars(JOB), "model": "m"}, Path("results"))
    given = dict(zip(words[::1], [*words[1:], ""], strict=True))
    assert (given["--random-input-len"], given["--random-output-len"]) == ("300", "4")
    assert (given["--num-prompts"], given["--max-concurrency"]) == ("100", "10")
    assert given["--random-range-ratio"] == "1"  # every request has exactly these lengths
    assert "--disable-stream" not in words
    assert "--disable-stream" in command_line({**vars(JOB), "model": "m", "streamed": False}, Path("results"))
