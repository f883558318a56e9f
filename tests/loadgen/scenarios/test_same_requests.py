"""A scenario's options and seed make the same prompts, token for token, whatever the server does meanwhile.

Scenarios that follow the server, such as `tight`, are not among these: what they send depends on what they see.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from loadgen.requests.prompts import PromptMaker
from loadgen.requests.request import PlannedRequest
from loadgen.scenarios import SCENARIOS, Observation
from loadgen.sglang.pages import Pool
from loadgen.sglang.server import ServerConfiguration

POOL = Pool(128, 32)
PROMPTS = 150


def requests(name: str, seed: int, open_requests: list[int]) -> Iterator[PlannedRequest]:
    """What is sent when so many requests are found open, in turn."""
    scenario: Any = SCENARIOS[name](ServerConfiguration(POOL), SCENARIOS[name].Options(), seed)
    elapsed = 0.0
    while True:
        for found in open_requests:
            yield from scenario.next_wave(Observation(elapsed, (), found)).requests
            elapsed += 0.25


def prompts(name: str, seed: int, open_requests: list[int]) -> list[tuple[list[int], int]]:
    maker = PromptMaker(seed, range(256))
    sent = enumerate(islice(requests(name, seed, open_requests), PROMPTS), 1)
    return [(maker.prompt(number, request), request.shape.max_new_tokens) for number, request in sent]


@pytest.mark.parametrize("name", ["churn", "burst", "extend", "replay", "steady"])
def test_prompts_depend_on_options_and_seed_alone(name: str) -> None:
    made = prompts(name, 3, [0])
    assert made == prompts(name, 3, [0, 7, 1, 0, 3])
    assert [prompt for prompt, _ in made] != [prompt for prompt, _ in prompts(name, 4, [0])]
