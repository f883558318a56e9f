"""`burst`: many requests at once on an idle server, and again when the last of them has been answered.

It has the shape of SGLang's own test of `--schedule-conservativeness`
(`test/registered/ascend/basic_function/parameter/test_ascend_schedule_conservativeness.py`): a server launched with
conservativeness 0 gets 100 questions at once, which begin with the same five examples and may be answered by 512
tokens; the test passes when the server answers them and says in its log that it retracted. It does not look whether a
step ever took the last free page. Lengths are scaled to the pool here.

The mechanism it leans on is the new token ratio, the share of its tokens to come that a running request is charged in
admission (`managers/scheduler_components/new_token_ratio_tracker.py` of 0.5.23). With conservativeness 0 it is 0: in
the pass that admits it a request is charged its whole answer, but from then on nothing, so pass after pass the pool is
filled with prompts. The first retraction sets the ratio to what the running requests have answered of what they may,
and it does not decay, since all that it decays by is 0 too. From then on admission keeps pages back. SGLang resets the
ratio when it is idle, which is why the next burst waits for that. Prompts share a prefix, and the radix cache is on, as
in SGLang's test.
"""

from __future__ import annotations

import random

from pydantic import Field

from ..requests.planned_request import PlannedRequest
from ..requests.wave import Wave
from ..sglang.limits import is_servable
from ..sglang.pages import Pool, pages_for
from ..sglang.server import EngineNeeds, ServerConfiguration
from ..sglang.shape import Segment, Shape
from .base import Misfit, NoOptions, Observation, PoolBounds, Scenario

MIN_POOL_PAGES = 4
_PREFILL_TOKENS = 8192
_PREFIX = 0


class BurstOptions(NoOptions):
    """Options of `burst`. Lengths that are not given are scaled to the pool."""

    requests: int = Field(default=100, ge=1, le=10_000, description="Requests of a burst.")
    shared_tokens: int | None = Field(
        default=None, ge=0, description="Tokens that all prompts begin with; absent: a 32nd of the pool."
    )
    own_tokens: int | None = Field(
        default=None, ge=1, description="Tokens of a prompt after those, at most; absent: a 32nd of the pool."
    )
    answer_tokens: int | None = Field(
        default=None, ge=1, description="New tokens of a request, at most; absent: a 16th of the pool."
    )


class Burst(Scenario[BurstOptions]):
    name = "burst"
    summary = "A hundred requests at once from an idle server, again and again: SGLang's own conservativeness test"
    bounds = PoolBounds(pages=MIN_POOL_PAGES, pages_at_fault="too few for a prompt and an answer")
    Options = BurstOptions

    def __init__(self, server: ServerConfiguration, options: BurstOptions, seed: int) -> None:
        super().__init__(server, options, seed)
        self._random = random.Random(seed)

    @classmethod
    def faults(cls, pool: Pool, options: BurstOptions) -> list[Misfit]:
        if faults := super().faults(pool, options):
            return faults
        shared, own, answer = _lengths(pool, options)
        if is_servable(Shape(shared + own, answer), pool):
            return []
        message = (
            f"a prompt of {shared} + {own} and an answer of {answer} tokens do not fit into {pool.pages} pages of "
            f"{pool.page_size}, with the page that SGLang keeps back; use a larger pool, or shorter lengths"
        )
        return [Misfit("engine.pool_pages", pool.pages, message)]

    @classmethod
    def engine_needs(cls, pool: Pool, options: BurstOptions) -> EngineNeeds:
        prefill = pages_for(_PREFILL_TOKENS, pool.page_size) * pool.page_size
        return EngineNeeds(("--schedule-conservativeness", "0", "--chunked-prefill-size", str(prefill)))

    @classmethod
    def longest_request(cls, pool: Pool, options: BurstOptions) -> int:
        return sum(_lengths(pool, options))

    def next_wave(self, seen: Observation) -> Wave:
        if seen.open_requests:
            return Wave()
        return Wave(tuple(self._request() for _ in range(self.options.requests)))

    def _request(self) -> PlannedRequest:
        shared, own, answer = _lengths(self.server.pool, self.options)
        shape = Shape(
            prompt_tokens=shared + self._random.randint(max(1, own // 2), own),
            max_new_tokens=self._random.randint(max(1, answer // 2), answer),
        )
        return PlannedRequest(shape, (Segment(_PREFIX, shared),) if shared else ())


def _lengths(pool: Pool, options: BurstOptions) -> tuple[int, int, int]:
    """Tokens of the shared prefix, the longest of what follows it, and the longest answer."""
    shared = pool.tokens // 32 if options.shared_tokens is None else options.shared_tokens
    own = options.own_tokens or max(1, pool.tokens // 32)
    return shared, own, options.answer_tokens or max(1, pool.tokens // 16)
