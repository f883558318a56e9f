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

from ..sglang.pages import Pool, pages_for
from ..sglang.server import EngineNeeds
from .base import Misfit
from .tight.requests import QueuedRequest
from .tight.scenario import MIN_PAGE_SIZE, Tight, TightOptions, needs_on

_FEWEST_PAGES_TO_TURN = 24
_SMALLEST_SHARE_OF_PROMPT = 2
_USUAL_SHARE = 0.8
_USUAL_BOUNDARIES = 8


class BallastOptions(TightOptions):
    """Options of `ballast`."""

    share: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="Share of the pool that the long requests come to hold. Absent: 80 %, less on a small pool.",
    )
    ballast_tokens: int = Field(
        default=16_384,
        ge=256,
        description="Prompt and answer of a long request at most, tokens. There are as few as that allows.",
    )
    boundaries: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="Pages that a long request takes while it decodes. Absent: 8, less on a small pool.",
    )


class Ballast(Tight):
    name = "ballast"
    summary = "A pool of full size, most of it held by a few long requests, and tight in what they leave"
    is_default = False
    expected_critical_share = None
    Options = BallastOptions
    options: BallastOptions

    @classmethod
    def faults(cls, pool: Pool, options: TightOptions) -> list[Misfit]:
        assert isinstance(options, BallastOptions)
        page = pool.page_size
        if page < MIN_PAGE_SIZE:
            return super().faults(pool, options)
        each, boundaries = _pages_each(pool, options), _boundaries(pool, options)
        if each < _SMALLEST_SHARE_OF_PROMPT * boundaries:
            message = f"of the {each} pages of a long request; allowed: half of them, of at least 2 pages"
            return [Misfit("load.options.boundaries", boundaries, message)]
        left = cls._shared(pool, options)
        needed = _FEWEST_PAGES_TO_TURN + _count(pool, options) * boundaries
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
        return max(
            _pages_each(pool, options) * pool.page_size,
            super().longest_request(cls._shared(pool, options), options),
        )

    @classmethod
    def _shared(cls, pool: Pool, options: TightOptions) -> Pool:
        assert isinstance(options, BallastOptions)
        return Pool(pool.page_size, pool.pages - _count(pool, options) * _prompt_pages(pool, options))

    def _needs(self) -> tuple[int, ...]:
        return needs_on(_at_the_end(self.server.pool, self.options), self.options)

    def _lasting_requests(self) -> list[QueuedRequest]:
        pool, options = self.server.pool, self.options
        page, count = pool.page_size, _count(pool, options)
        # They cross one by one, and not before the carousel turns.
        return [
            QueuedRequest(
                _prompt_pages(pool, options),
                at_step=page - 1 - place * (page // 2) // count % (page // 2),
                steps=_boundaries(pool, options) * page,
            )
            for place in range(count)
        ]


def _share_pages(pool: Pool, options: BallastOptions) -> int:
    """Pages that the long requests hold together at their end, about."""
    if options.share is not None:
        return int(options.share * pool.pages)
    return max(0, min(int(_USUAL_SHARE * pool.pages), pool.pages - _FEWEST_PAGES_TO_TURN))


def _count(pool: Pool, options: BallastOptions) -> int:
    """As few long requests as can be."""
    return max(1, pages_for(_share_pages(pool, options), max(1, options.ballast_tokens // pool.page_size)))


def _pages_each(pool: Pool, options: BallastOptions) -> int:
    """Pages of a long request at its end."""
    return _share_pages(pool, options) // _count(pool, options)


def _boundaries(pool: Pool, options: BallastOptions) -> int:
    if options.boundaries is not None:
        return options.boundaries
    return max(1, min(_USUAL_BOUNDARIES, _pages_each(pool, options) // _SMALLEST_SHARE_OF_PROMPT))


def _prompt_pages(pool: Pool, options: BallastOptions) -> int:
    return _pages_each(pool, options) - _boundaries(pool, options)


def _at_the_end(pool: Pool, options: BallastOptions) -> Pool:
    """What is left to take turns in when the long requests have all their pages."""
    return Pool(pool.page_size, pool.pages - _count(pool, options) * _pages_each(pool, options))
