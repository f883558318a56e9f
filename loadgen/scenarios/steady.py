"""`steady`: plain open-loop load, as benchmarks make it. It leaves slack in the pool; it is here for comparison.

Requests arrive at random (a Poisson process) at a fixed mean rate, whether or not earlier ones have been answered, with
prompt and answer lengths drawn evenly from a range. It leans on no mechanism of the scheduler.
"""

from __future__ import annotations

import random

from pydantic import Field

from ..requests.wave import Wave
from ..sglang.launch_arguments import usual_launch
from ..sglang.limits import is_servable
from ..sglang.pages import Pool
from ..sglang.server import EngineNeeds, ServerConfiguration
from ..sglang.shape import Shape
from .base import Misfit, NoOptions, Observation, Scenario, Streamed


class SteadyOptions(NoOptions):
    """Options of `steady`. The longest prompt and answer default to a 16th and a 32nd of the pool."""

    rate: float = Field(default=4.0, gt=0, le=1000, description="Mean arrivals a second.")
    max_prompt_tokens: int | None = Field(default=None, ge=1, description="Longest prompt, tokens.")
    max_answer_tokens: int | None = Field(default=None, ge=1, description="Longest answer, tokens.")


class Steady(Scenario[SteadyOptions]):
    name = "steady"
    summary = "Plain open-loop load at a fixed mean rate; leaves slack in the pool, for comparison"
    streamed = Streamed.ALL
    Options = SteadyOptions

    def __init__(self, server: ServerConfiguration, options: SteadyOptions, seed: int) -> None:
        super().__init__(server, options, seed)
        self._random = random.Random(seed)
        self._longest_prompt, self._longest_answer = _longest(server.pool, options)
        self._next_arrival = self._random.expovariate(options.rate)

    @classmethod
    def faults(cls, pool: Pool, options: SteadyOptions) -> list[Misfit]:
        prompt, answer = _longest(pool, options)
        if not is_servable(Shape(prompt, answer), pool):
            message = (
                f"a prompt of {prompt} and an answer of {answer} tokens do not fit into {pool.pages} pages of "
                f"{pool.page_size}, with the page that SGLang keeps back; use a larger pool, or shorter lengths"
            )
            return [Misfit("engine.pool_pages", pool.pages, message)]
        return []

    @classmethod
    def engine_needs(cls, pool: Pool, options: SteadyOptions) -> EngineNeeds:
        return usual_launch(pool)

    @classmethod
    def longest_request(cls, pool: Pool, options: SteadyOptions) -> int:
        return sum(_longest(pool, options))

    def next_wave(self, seen: Observation) -> Wave:
        shapes = []
        while self._next_arrival <= seen.elapsed:
            self._next_arrival += self._random.expovariate(self.options.rate)
            prompt = self._random.randint(max(1, self._longest_prompt // 2), self._longest_prompt)
            answer = self._random.randint(max(1, self._longest_answer // 2), self._longest_answer)
            shapes.append(Shape(prompt, answer))
        return Wave.of(shapes, streamed=True)


def _longest(pool: Pool, options: SteadyOptions) -> tuple[int, int]:
    prompt = options.max_prompt_tokens or max(1, pool.tokens // 16)
    answer = options.max_answer_tokens or max(1, pool.tokens // 32)
    return prompt, answer
