"""A scenario's options and seed make the same prompts, token for token, whatever the server does meanwhile.

Scenarios that follow the server, such as `tight`, say so (`Scenario.follows`): what they send depends on what they see.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import pytest

from loadgen.requests.planned_request import PlannedRequest
from loadgen.requests.prompts import PromptMaker
from loadgen.scenarios import SCENARIOS, Observation, ObservedStep
from loadgen.sglang.pages import Pool
from loadgen.sglang.server import ServerConfiguration

POOL = Pool(128, 32)
PROMPTS = 150
OPTIONS = {"waves": {"waves": [{"requests": "5+9"}, {"requests": "7+2", "after_steps": 3}]}}
"""Of scenarios whose options have no defaults."""


class Steps(Sequence[ObservedStep]):
    """No decode steps, and whether anybody looked."""

    looked = False

    def __len__(self) -> int:
        self.looked = True
        return 0

    def __getitem__(self, place: Any) -> Any:
        self.looked = True
        return () if isinstance(place, slice) else [][place]


def started(name: str, seed: int) -> Any:
    options = SCENARIOS[name].Options.model_validate(OPTIONS.get(name, {}))
    return SCENARIOS[name](ServerConfiguration(POOL), options, seed)


def requests(name: str, seed: int, open_requests: list[int]) -> Iterator[PlannedRequest]:
    """What is sent when so many requests are found open, in turn."""
    scenario = started(name, seed)
    elapsed = 0.0
    while True:
        for found in open_requests:
            yield from scenario.next_wave(Observation(elapsed, (), found)).requests
            elapsed += 0.25


def prompts(name: str, seed: int, open_requests: list[int]) -> list[tuple[list[int], int]]:
    maker = PromptMaker(seed, range(256))
    sent = enumerate(islice(requests(name, seed, open_requests), PROMPTS), 1)
    return [(maker.prompt(number, request), request.shape.max_new_tokens) for number, request in sent]


@pytest.mark.parametrize("name", [name for name, scenario in SCENARIOS.items() if not scenario.follows])
def test_prompts_depend_on_options_and_seed_alone(name: str) -> None:
    made = prompts(name, 3, [0])
    assert made == prompts(name, 3, [0, 7, 1, 0, 3])
    assert [prompt for prompt, _ in made] != [prompt for prompt, _ in prompts(name, 4, [0])]


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_that_looks_at_decode_steps_says_that_it_follows_them(name: str) -> None:
    scenario, steps = started(name, 3), Steps()
    for look in range(8):
        scenario.next_wave(Observation(look / 4, steps, 0))
    assert steps.looked is scenario.follows
