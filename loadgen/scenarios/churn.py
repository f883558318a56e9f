"""`churn`: requests are retracted, prefilled again, and retracted again.

The mechanism it leans on is SGLang's retraction. Admission keeps back nothing for tokens to come (the launch sees to
that), so rows are admitted until one page is left, and soon a decode step needs more pages than are free. Then
`ScheduleBatch.retract_decode` (`managers/schedule_batch.py` of 0.5.23) puts rows back into the queue, those with the
fewest new tokens first and of those the longest prompts, until what is needed by the others is there. It always puts
back one at least. A row that is put back keeps its tokens, loses its pages, and is prefilled anew, tokens and all, when
it is admitted again.

So a step in which `n` rows cross with `f` pages free puts back `k` rows, and is tight if what they gave back
is just what is missing. Rows of one page that do not cross give back one each: `f + k == n`. Rows of one page that
cross give back one and need one less: `f + k == n - k`. The load is made of such rows for the most part:

- *short* requests of one page, which cross soon after they are admitted and end soon after that. Being the newest, they
  are put back first. Many come in groups of equal length, which cross together, so that several pages are needed;
- *long* ones, which live over several page boundaries. They fill the pool slowly, are put back with several pages (such
  steps are not tight), and come back with prompts of odd lengths;
- *large* ones, with prompts of up to most of the pool. Beside them few rows run, so batches of every size retract.

There is always progress, as the row with the most new tokens is never put back. After a retraction SGLang raises the
new token ratio, by which it charges tokens to come, and on other loads admits little for a long time. Here that does
nothing, since what it is a ratio of is 0.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

from pydantic import Field

from ..requests.wave import Wave
from ..sglang.launch_arguments import over_committing
from ..sglang.limits import is_servable
from ..sglang.pages import Pool, pages_for
from ..sglang.releases import NEWEST
from ..sglang.rules import Rules
from ..sglang.server import EngineNeeds, ServerConfiguration
from ..sglang.shape import Shape
from .base import Misfit, NoOptions, Observation, PoolBounds, Scenario

MIN_PAGE_SIZE = 8
MIN_POOL_PAGES = 6
_PREFILL_TOKENS = 8192
_LARGEST_PROMPT_TOKENS = 4096
_PORTIONS = 32
_SMALLEST_PORTION = 4
_FEWEST_WAITING = 16
_MOST_WAITING = 1024
_GROUPS = (1, 1, 1, 2, 4, 8, 12)


class ChurnOptions(NoOptions):
    """Options of `churn`. As many requests are kept open as four for each page of the pool, from 16 to 1024."""

    open_requests: int | None = Field(default=None, ge=8, le=10_000, description="Requests kept open at any time.")
    long_share: float = Field(default=0.05, ge=0, le=1, description="Share of groups that are long.")
    boundaries: int = Field(default=3, ge=2, le=64, description="Page boundaries that a long request crosses, at most.")
    large_share: float = Field(default=0.05, ge=0, le=1, description="Share of large requests among groups.")


class Churn(Scenario[ChurnOptions]):
    name = "churn"
    summary = "Retraction over and over: far more rows than the pool can hold to their end"
    Options = ChurnOptions

    def __init__(self, server: ServerConfiguration, options: ChurnOptions, seed: int) -> None:
        super().__init__(server, options, seed)
        self._shapes = shapes(server.pool, options, seed, server.rules)
        self._open = options.open_requests or min(max(4 * server.pool.pages, _FEWEST_WAITING), _MOST_WAITING)
        self._portion = max(_SMALLEST_PORTION, self._open // _PORTIONS)

    @classmethod
    def faults(cls, pool: Pool, options: ChurnOptions) -> list[Misfit]:
        return PoolBounds(
            page_size=MIN_PAGE_SIZE,
            page_too_small="too small for rows that cross soon",
            # The longest: a page of prompt, its boundaries, and the page that SGLang keeps back.
            pages=max(MIN_POOL_PAGES, options.boundaries + 3),
            pages_at_fault=f"too few for requests that cross {options.boundaries} boundaries",
        ).misfits(cls.name, pool)

    @classmethod
    def engine_needs(cls, pool: Pool, options: ChurnOptions) -> EngineNeeds:
        return over_committing(pages_for(_PREFILL_TOKENS, pool.page_size), pool)

    @classmethod
    def longest_request(cls, pool: Pool, options: ChurnOptions) -> int:
        return max(options.boundaries + 1, _largest_prompt_pages(pool) + 2) * pool.page_size

    def next_wave(self, seen: Observation) -> Wave:
        # A call counts as open until the last of its requests is answered, so each holds few.
        if self._open - seen.open_requests < self._portion:
            return Wave()
        return Wave.of(islice(self._shapes, self._portion))


def shapes(pool: Pool, options: ChurnOptions, seed: int, rules: Rules = NEWEST) -> Iterator[Shape]:
    """The requests in the order in which they are sent; they depend on nothing else."""
    chance = random.Random(seed)
    while True:
        if chance.random() < options.large_share:
            group = [_large(pool, chance)]
        else:
            boundaries = chance.randint(2, options.boundaries) if chance.random() < options.long_share else 1
            group = [_crossing(boundaries, pool.page_size, chance)] * chance.choice(_GROUPS)
        assert all(is_servable(shape, pool, rules) for shape in group)
        yield from group


def _crossing(boundaries: int, page: int, chance: random.Random) -> Shape:
    """A request whose prompt nearly fills a page, and which ends soon after it has crossed so many boundaries."""
    first = chance.randint(1, page // 8)
    last = first + (boundaries - 1) * page
    return Shape(prompt_tokens=page + 1 - first, max_new_tokens=last + 1 + chance.randint(0, max(1, page // 32)))


def _large(pool: Pool, chance: random.Random) -> Shape:
    page = pool.page_size
    prompt = chance.randint(page + 1, _largest_prompt_pages(pool) * page)
    return Shape(prompt, chance.randint(max(2, page // 16), page + page // 2))


def _largest_prompt_pages(pool: Pool) -> int:
    return max(2, min(pool.pages - 4, _LARGEST_PROMPT_TOKENS // pool.page_size))
