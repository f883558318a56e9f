"""A scenario whose waves are kept as a driver would tell them, for tests of what is written down of a load."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from loadgen.http.client import GenerateClient, GenerateRequest
from loadgen.requests.prompts import PromptMaker
from loadgen.requests.wave import SentWave, Wave
from loadgen.scenarios.base import NoOptions, Observation, Scenario
from loadgen.sglang.pages import Pool

from .fake_sglang import answer_in_full, fake_sglang


class Recorded(Scenario[NoOptions]):
    """Passes everything on to another scenario.

    Attributes:
        sent: the waves so far.
    """

    name = "recorded"
    summary = "another scenario, with what it sends"

    def __init__(self, scenario: Scenario[Any]) -> None:
        super().__init__(scenario.server, NoOptions(), scenario.seed)
        self.sent: list[SentWave] = []
        self._scenario = scenario
        self._steps = 0
        self._requests = 0

    @classmethod
    def longest_request(cls, pool: Pool, options: NoOptions) -> int:
        raise NotImplementedError

    @property
    def finished(self) -> bool:
        return self._scenario.finished

    def next_wave(self, seen: Observation) -> Wave:
        wave = self._scenario.next_wave(seen)
        self._steps += len(seen.steps)
        if wave.requests:
            self.sent.append(SentWave(seen.elapsed, self._steps, seen.open_requests, self._requests + 1, wave))
            self._requests += len(wave.requests)
        return wave


async def bodies(sent: Sequence[SentWave], seed: int) -> list[bytes]:
    """What a server gets of a load: the HTTP bodies as canonical JSON, in the order in which they are sent."""
    prompts = PromptMaker(seed, range(256))
    async with fake_sglang(answer_in_full) as server:
        client = GenerateClient(server.url)
        for wave in sent:
            requests = [
                GenerateRequest(prompts.prompt(number, planned_request), planned_request.shape.max_new_tokens)
                for number, planned_request in wave.numbered
            ]
            if not wave.wave.streamed:
                await client.send_together(requests)
                continue
            for request in requests:
                await client.send_streamed(request)
    return [json.dumps(body, sort_keys=True, separators=(",", ":")).encode() for body in server.bodies]
