"""`ballast`: a pool of full size made tight by a few long requests, so that all of a device's KV memory is in use.

It leans on what `tight` leans on, and on chunked prefill (`managers/schedule_policy.py`): a prompt longer than one
prefill is admitted when all of it fits, and is prefilled piece by piece before anything else is decoded.

First come the long requests, the ballast, which hold most of the pool and run on for many decode steps. In what is
left of the pool a carousel turns, as `tight` has it. Every `page_size` decode steps each long request needs a page as
well, and keeps it: in that step need is one more than is due otherwise, and the carousel has a page less from then on.
Before the ballast ends everything is let end, and all begins anew.
"""

from __future__ import annotations

from pydantic import Field

from ..pages import Pool
from .base import EngineNeeds, Misfit
from .riders import Ticket
from .tight import MIN_PAGE_SIZE, Tight, TightOptions, needs_on

_FEWEST_PAGES_TO_TURN = 24
_SMALLEST_SHARE_OF_PROMPT = 2


class BallastOptions(TightOptions):
    """Options of `ballast`."""

    share: float = Field(default=0.8, gt=0, lt=1, description="Share of the pool that the long requests hold.")
    ballast_tokens: int = Field(
        default=16_384, ge=256, description="Prompt and answer of a long request, tokens; the model's context at most."
    )
    boundaries: int = Field(default=8, ge=1, le=1000, description="Pages that a long request takes while it decodes.")


class Ballast(Tight):
    name = "ballast"
    summary = "A pool of full size, most of it held by a few long requests, and tight in what they leave"
    Options = BallastOptions
    options: BallastOptions

    @classmethod
    def faults(cls, pool: Pool, options: TightOptions) -> list[Misfit]:
        assert isinstance(options, BallastOptions)
        page = pool.page_size
        if page < MIN_PAGE_SIZE:
            return super().faults(pool, options)
        at_least = _SMALLEST_SHARE_OF_PROMPT * options.boundaries
        if _pages_each(pool, options) < at_least:
            message = f"holds fewer than {at_least} pages of {page}, twice the boundaries that it crosses"
            return [Misfit("load.options.ballast_tokens", options.ballast_tokens, message)]
        if _count(pool, options) < 1:
            message = f"of {pool.pages} pages is less than one long request of {_pages_each(pool, options)} pages"
            return [Misfit("load.options.share", options.share, message)]
        left = cls._shared(pool, options)
        needed = _FEWEST_PAGES_TO_TURN + _count(pool, options) * options.boundaries
        if left.pages < needed:
            message = (
                f"the long requests leave {left.pages} pages of it, and {needed} are needed to take turns in; "
                "use a larger pool, a smaller share, or fewer boundaries"
            )
            return [Misfit("engine.pool_pages", pool.pages, message)]
        return super().faults(_at_the_end(pool, options), options)

    @classmethod
    def engine_needs(cls, pool: Pool, options: TightOptions) -> EngineNeeds:
        return super().engine_needs(cls._shared(pool, options), options)

    @classmethod
    def longest_request(cls, pool: Pool, options: TightOptions) -> int:
        assert isinstance(options, BallastOptions)
        return max(options.ballast_tokens, super().longest_request(cls._shared(pool, options), options))

    @classmethod
    def _shared(cls, pool: Pool, options: TightOptions) -> Pool:
        assert isinstance(options, BallastOptions)
        return Pool(pool.page_size, pool.pages - _count(pool, options) * _prompt_pages(pool, options))

    def _needs(self) -> tuple[int, ...]:
        return needs_on(_at_the_end(self.server.pool, self.options), self.options)

    def _lasting_requests(self) -> list[Ticket]:
        pool, options = self.server.pool, self.options
        page, count = pool.page_size, _count(pool, options)
        # They cross one by one, and not before the carousel turns.
        return [
            Ticket(
                _prompt_pages(pool, options),
                at_step=page - 1 - place * (page // 2) // count % (page // 2),
                steps=options.boundaries * page,
            )
            for place in range(count)
        ]


def _pages_each(pool: Pool, options: BallastOptions) -> int:
    """Pages of a long request at its end."""
    return options.ballast_tokens // pool.page_size


def _prompt_pages(pool: Pool, options: BallastOptions) -> int:
    return _pages_each(pool, options) - options.boundaries


def _count(pool: Pool, options: BallastOptions) -> int:
    return int(options.share * pool.pages) // _pages_each(pool, options)


def _at_the_end(pool: Pool, options: BallastOptions) -> Pool:
    """What is left to take turns in when the long requests have all their pages."""
    return Pool(pool.page_size, pool.pages - _count(pool, options) * _pages_each(pool, options))
