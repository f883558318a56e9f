"""`abort`: clients that hang up while the pool is tight.

It leans on two mechanisms. A client that hangs up makes SGLang abort its request (`managers/scheduler.py`,
`abort_request`): one that waits is taken out of the queue, one that runs ends with the next token, and its pages come
back in a step that nobody planned. And admission, with nothing reserved for tokens to come, takes all pages but one
(`tight` says how). So with a queue that never runs empty the pool is near its edge all along, and what an abort gives
back is taken at once.

A closed loop: as many requests are open as keep the queue full. Most hold a page and end as they cross into the next;
a few hold a good part of the pool, so that pools of any size are filled by some dozens of requests. A share of them is
hung up on: while they wait or are prefilled (after a moment), in the middle of decode (after some tokens), and in the
step in which they need a page (after the token before it). When several need a page at once, some are retracted. That
is wanted: those may be hung up on as well.
"""

from __future__ import annotations

import random

from pydantic import Field

from ..requests.planned_request import PlannedRequest
from ..requests.wave import Wave
from ..sglang.pages import Pool, crossing_once
from ..sglang.server import EngineNeeds, ServerConfiguration
from .base import NoOptions, Observation, Scenario, Streamed
from .tight.scenario import Tight, TightOptions

_ROWS_FOR_A_LARGE_ONE = 16
_LARGE_SHARE_OF_POOL = 8
_FEWEST_ROWS = 4
_LONGEST_LARGE_TOKENS = 4096
_LONGEST_MOMENT_SECONDS = 0.5
_PORTIONS = 16


class AbortOptions(NoOptions):
    """Options of `abort`."""

    share: float = Field(default=0.25, gt=0, le=1, description="Share of the requests whose client hangs up.")
    open_requests: int = Field(
        default=128, ge=16, le=1024, description="Requests that are open at any time, running and waiting."
    )


class Abort(Scenario[AbortOptions]):
    name = "abort"
    summary = "Clients that hang up, waiting, in prefill and in decode, while the pool is at its edge"
    streamed = Streamed.SOME
    bounds = Tight.bounds
    Options = AbortOptions

    def __init__(self, server: ServerConfiguration, options: AbortOptions, seed: int) -> None:
        super().__init__(server, options, seed)
        self._random = random.Random(seed)

    @classmethod
    def engine_needs(cls, pool: Pool, options: AbortOptions) -> EngineNeeds:
        return Tight.engine_needs(pool, TightOptions())

    @classmethod
    def longest_request(cls, pool: Pool, options: AbortOptions) -> int:
        return (_large_pages(pool) + 1) * pool.page_size

    def next_wave(self, seen: Observation) -> Wave:
        missing = self.options.open_requests - seen.open_requests
        # What is sent together is answered together, so that few at a time keep the queue from running empty.
        portion = self.options.open_requests // _PORTIONS
        return Wave(tuple(self._request() for _ in range(portion))) if missing >= portion else Wave()

    def _request(self) -> PlannedRequest:
        pool = self.server.pool
        # About one request crosses in each decode step: each lives as many steps as requests run beside it.
        longest_life = min(pool.page_size, 2 * _rows(pool))
        at_step = self._random.randint(2, longest_life)
        pages = 1
        if self._random.randrange(_ROWS_FOR_A_LARGE_ONE) == 0:
            pages, at_step = _large_pages(pool), pool.page_size
        shape = crossing_once(pages, at_step, pool.page_size)
        if self._random.random() >= self.options.share:
            return PlannedRequest(shape)
        return self._random.choice(
            [
                PlannedRequest(shape, hang_up_seconds=self._random.uniform(0, _LONGEST_MOMENT_SECONDS)),
                PlannedRequest(shape, hang_up_tokens=self._random.randint(1, at_step)),
                # The token before the step in which it takes a page.
                PlannedRequest(shape, hang_up_tokens=at_step),
            ]
        )


def _large_pages(pool: Pool) -> int:
    """Pages of a large request: some of them and the small ones beside them fill the pool."""
    return max(1, min(pool.pages // _LARGE_SHARE_OF_POOL, _LONGEST_LARGE_TOKENS // pool.page_size))


def _rows(pool: Pool) -> int:
    """Requests that run at once, about."""
    pages_for_some = _ROWS_FOR_A_LARGE_ONE - 1 + _large_pages(pool)
    return max(_FEWEST_ROWS, pool.pages * _ROWS_FOR_A_LARGE_ONE // pages_for_some)
