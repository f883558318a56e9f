"""`tight`: in every decode step the requests that need a page take the last free ones, with trailing rows.

The mechanism it leans on is SGLang's admission. A request is admitted when its prompt, and one page more, is less
than what is free, and it is charged a page too many. So when `n` requests of together `p` pages cross a boundary and
end, they leave exactly the room in which `n` successors of together `p` pages are admitted in one pass, with `n` pages
free. That is a fixed point: need `n`, free `n`, step after step. It needs no timing, as long as requests wait in the
server's queue. The server is launched so that admission reserves nothing for tokens to come (`engine_needs`).

The load gets there in two moves:

1. *Seating*: requests of equal size, staggered so that from some decode step on one of them crosses in each. A pass of
   admissions charges each of them one page too many, so as many pages as requests are left over. Once the probe has
   seen them all run, one more request takes what is left over, all but one page.
2. *Turning*: successors, planned from what the probe saw, so that in each decode step as many cross as are due. They
   wait in the server's queue. How many are due changes from time to time (`needs`), and no step is lost for that:
   before a step that needs more, the successors hold that much less.

From then on the load is corrected by what the probe sees: what is free beyond what is due is held by the next
successors; when the server does what was not foreseen, the queue ran dry, or too few steps were tight for long, the
carousel is emptied and started anew.

Releases such as 0.5.18 do not foresee, with overlap scheduling, that a request ends: it lingers in the batch for a step
more, its pages come back late, and the fixed point does not hold. The first critical step comes all the same, but few
follow before the carousel starts anew.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ...requests.wave import Wave
from ...sglang.admission import free_after, most_pages_each
from ...sglang.launch_arguments import over_committing
from ...sglang.pages import Pool, pages_for
from ...sglang.releases import NEWEST
from ...sglang.rules import Rules
from ...sglang.server import EngineNeeds, ServerConfiguration
from ...sglang.steps import ObservedStep
from ..base import Misfit, NoOptions, Observation, PoolBounds, Restart, Scenario
from .carousel import Carousel, OutOfStep
from .crossing_schedule import CrossingSchedule, Phase
from .requests import QueuedRequest

MIN_PAGE_SIZE = 32
MIN_POOL_PAGES = 7
_LONGEST_PROMPT_TOKENS = 8192
_FIRST_LEAD_STEPS = 24
_FILL_MARGIN_STEPS = 8
_FEWEST_STEPS_AHEAD = 3
_FEWEST_SEATS = 3
_FEWEST_TIGHT = 0.8
_FIRST_PATIENCE_STEPS = 512
_USUAL_QUEUE = 64
_LONGEST_QUEUE = 512
_QUEUE_PORTIONS = 8
# uvicorn stops reading a request's body at 64 KiB, until it is asked for more. A server that was held up then takes in
# a shorter request first, though it was sent later; a token is up to seven characters of it.
_MOST_TOKENS_AT_ONCE = 8192
_USUAL_NEEDS = (1, 2, 4, 8)
_PAGES_FOR_A_NEED = 8
_MOST_NEEDED = 16
_FEWEST_PHASE_STEPS = 16
_STEPS_BEFORE_THE_END = 8
_FEWEST_PAGES_EACH = 2


class _Stage(enum.Enum):
    OPENING = enum.auto()
    SEATING = enum.auto()
    TURNING = enum.auto()
    EMPTYING = enum.auto()


class TightOptions(NoOptions):
    """Options of `tight`."""

    queue: int = Field(
        default=_USUAL_QUEUE,
        ge=8,
        le=_LONGEST_QUEUE,
        description="Requests kept waiting in the server's queue, for each that crosses.",
    )
    needs: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(
        default=None,
        min_length=1,
        description="Pages that a decode step needs, one after the other; 1, 2 and 4 as the pool allows.",
    )
    orders: tuple[Literal["oldest", "any"], ...] = Field(
        default=("oldest", "any"),
        min_length=1,
        description="Which rows cross: always the oldest, or any, so that sometimes few rows are trailing.",
    )
    steps_per_need: int = Field(default=256, ge=32, le=100_000, description="Decode steps for which each need is held.")


class Tight(Scenario[TightOptions]):
    name = "tight"
    summary = "Every decode step takes the last free pages: a carousel of staggered requests, corrected by feedback"
    is_default = True
    # On 32 pages and on 256 it is far above this.
    expected_critical_share: ClassVar[float | None] = 0.5
    follows = True
    bounds = PoolBounds(
        page_size=MIN_PAGE_SIZE,
        page_too_small="too small to stagger requests in",
        pages=MIN_POOL_PAGES,
        pages_at_fault="too few for requests to take turns",
    )
    Options = TightOptions

    def __init__(self, server: ServerConfiguration, options: TightOptions, seed: int) -> None:
        super().__init__(server, options, seed)
        self._pool = self._shared(server.pool, options)
        self._leads = deque(possible_leads(self._pool))
        self._patience = _FIRST_PATIENCE_STEPS
        self._queue = options.queue
        self._most_needed = max(self._needs())
        self._elapsed = 0.0
        self._begin()

    @classmethod
    def faults(cls, pool: Pool, options: TightOptions) -> list[Misfit]:
        faults = super().faults(pool, options)
        if not faults and max(needs_on(pool, options)) > (most := most_needed(pool)):
            message = f"more than {pool.pages} pages of {pool.page_size} can be brought to need at once; at most {most}"
            faults.append(Misfit("load.options.needs", max(needs_on(pool, options)), message))
        return faults

    @classmethod
    def engine_needs(cls, pool: Pool, options: TightOptions) -> EngineNeeds:
        return over_committing(prefill_pages(pool), pool)

    @classmethod
    def longest_request(cls, pool: Pool, options: TightOptions) -> int:
        return (longest_prompt_pages(pool) + 1) * pool.page_size

    def next_wave(self, seen: Observation) -> Wave:
        self._elapsed = seen.elapsed
        for step in seen.steps:
            self._follow(step)
        if self._stage is _Stage.EMPTYING:
            if seen.open_requests:
                return Wave()
            self._begin()
        to_queue = self._plan()
        self._carousel.queue_up(to_queue)
        return Wave.of(queued.shape(self._pool.page_size) for queued in to_queue)

    def _begin(self) -> None:
        pool = self._pool
        self._stage = _Stage.OPENING
        self._lasting: int | None = None
        self._carousel = Carousel(
            pool.page_size, prefill_pages(pool), self.server.overlap, self.seed, self.server.rules
        )
        self._seats = choose_seats(pool, self._leads[0], self.server.rules)
        self._now = 0
        self._filled_at: int | None = None
        self._tight: deque[bool] = deque()

    def _follow(self, step: ObservedStep) -> None:
        if self._stage is _Stage.EMPTYING:
            return
        self._now = step.step
        try:
            self._carousel.follow(step)
        except OutOfStep as reason:
            self._restart(reason.cause, str(reason))
            return
        if self._stage is _Stage.TURNING:
            self._tight.append(0 < step.need == step.free)

    def _restart(self, cause: str, reason: str, longest_queue: int = _USUAL_QUEUE) -> None:
        if self._stage is _Stage.TURNING and self._queue < longest_queue:
            # Whatever was seen, it may have come from successors that were late.
            self._queue = min(2 * self._queue, longest_queue)
            reason += f"; {self._queue} requests are kept waiting from now on"
        self.restarts.append(Restart(self._elapsed, cause, reason))
        self._stage = _Stage.EMPTYING

    def _plan(self) -> list[QueuedRequest]:
        if self._stage is _Stage.OPENING:
            if self._lasting is None:
                lasting = self._lasting_requests()
                self._lasting = len(lasting)
                return lasting
            if len(self._carousel.running) < self._lasting:
                return []
            self._stage = _Stage.SEATING
            pages = seat_pages(self._pool, self._seats, self.server.rules)
            return [QueuedRequest(pages, self._leads[0] + seat) for seat in range(self._seats)]
        if self._stage is _Stage.SEATING:
            return self._fill()
        return self._turn()

    def _fill(self) -> list[QueuedRequest]:
        """Take what admission left over; when nothing is, begin to turn."""
        if self._carousel.queue:
            return []
        crossings = [row.last_step for row in self._carousel.running if row.crosses == row.last_step]
        # What is sent now has to be in the server's queue when the first seat is free.
        if not crossings or min(crossings) < self._now + max(self._round_trip(), _FEWEST_STEPS_AHEAD):
            self._leads.rotate(-1)
            cause = "the first crossing came too early"
            self._restart(cause, f"{cause}; it comes after {self._leads[0]} steps from now on")
            return []
        left = free_after(last_page_full=False, rules=self.server.rules)
        if self._carousel.free > left:
            self._filled_at = self._now
            at_step = min(max(crossings) + _FILL_MARGIN_STEPS - self._now, self._pool.page_size)
            return [QueuedRequest(min(self._carousel.free - left, longest_prompt_pages(self._pool)), at_step)]
        self._stage = _Stage.TURNING
        self._seats = len(crossings)
        self._schedule = self._new_schedule(min(crossings))
        self._tight = deque(maxlen=self._patience)
        return self._turn()

    def _round_trip(self) -> int:
        """Decode steps from the sending of the fill until it was seen to run; 0 before it is."""
        return 0 if self._filled_at is None else self._now - self._filled_at

    def _turn(self) -> list[QueuedRequest]:
        if not self._carousel.queue and len(self._carousel.running) < self._seats + (self._lasting or 0):
            cause = "the server's queue ran dry"
            self._restart(cause, cause, _LONGEST_QUEUE)
            return []
        lasting = [row.last_step for row in self._carousel.running if row.crosses != row.last_step]
        if lasting and min(lasting) < self._now + _STEPS_BEFORE_THE_END:
            cause = "the long requests are about to end"
            self._restart(cause, cause, longest_queue=0)
            return []
        if len(self._tight) == self._patience and sum(self._tight) < _FEWEST_TIGHT * self._patience:
            # Some states repeat themselves without a surplus that stays. If starting anew is no help, do it less often.
            cause = "too few decode steps were tight"
            self._restart(cause, f"{cause}: {sum(self._tight)} of the last {self._patience}")
            self._patience *= 2
            return []
        return self._successors()

    def _successors(self) -> list[QueuedRequest]:
        queue = self._queue * self._most_needed
        missing = queue - len(self._carousel.queue)
        # Some at a time: one HTTP call for each would cost client and server more than the requests themselves, and of
        # one call for all SGLang schedules none until it has taken in the last.
        most = most_at_once(self._pool, self._seats)
        portion = min(queue // _QUEUE_PORTIONS, most)
        if missing < portion:
            return []
        return self._carousel.successors(min(missing, max(portion, _QUEUE_PORTIONS), most), self._schedule)

    def _lasting_requests(self) -> list[QueuedRequest]:
        """Requests that run on beside those that take turns."""
        return []

    @classmethod
    def _shared(cls, pool: Pool, options: TightOptions) -> Pool:
        """What the requests share that take turns."""
        return pool

    def _needs(self) -> tuple[int, ...]:
        return needs_on(self._pool, self.options)

    def _new_schedule(self, start: int) -> CrossingSchedule:
        pool = self._pool
        phases = []
        for wanted in self._needs():
            # After a long lead there are few seats.
            need = max(1, min(wanted, self._seats - 1))
            others = max(need, min(self._seats - 1, (pool.pages - need) // _FEWEST_PAGES_EACH - need))
            steps = max(_FEWEST_PHASE_STEPS, self.options.steps_per_need // len(self.options.orders))
            for order in self.options.orders:
                mixed = order == "any"
                phases.append(Phase(need, others + (self._lasting or 0), steps, mixed=mixed, pause=mixed))
        return CrossingSchedule(phases, start)


def needs_on(pool: Pool, options: TightOptions) -> tuple[int, ...]:
    """The needs that are gone through on a pool."""
    if options.needs is not None:
        return options.needs
    return tuple(need for need in _USUAL_NEEDS if need == 1 or need <= most_needed(pool))


def most_needed(pool: Pool) -> int:
    """The largest need that is held: at least as many rows stay as cross, and all that cross fit into one prefill."""
    seats = choose_seats(pool, possible_leads(pool)[0])
    pages_each = pages_for(pool.pages, seats)
    return max(
        1, min(pool.pages // _PAGES_FOR_A_NEED, seats - 1, prefill_pages(pool) // (2 * pages_each), _MOST_NEEDED)
    )


def most_at_once(pool: Pool, seats: int | None = None) -> int:
    """Successors that are sent in one call at most; there are as many seats as there can be unless told otherwise."""
    pages_each = pages_for(pool.pages, seats or choose_seats(pool, possible_leads(pool)[0]))
    return max(1, _MOST_TOKENS_AT_ONCE // (pages_each * pool.page_size))


def prefill_pages(pool: Pool) -> int:
    """Pages that one prefill takes."""
    return max(pages_for(_LONGEST_PROMPT_TOKENS, pool.page_size), longest_prompt_pages(pool))


def possible_leads(pool: Pool) -> list[int]:
    """Decode steps before the first crossing: few at first, as a carousel with many seats needs the rest of a page."""
    longest = pool.page_size - _FEWEST_SEATS
    leads = [min(_FIRST_LEAD_STEPS, pool.page_size // 2)]
    while leads[-1] < longest:
        leads.append(min(2 * leads[-1], longest))
    return leads


def seat_pages(pool: Pool, seats: int, rules: Rules = NEWEST) -> int:
    """Pages of each request that is seated at first.

    One pass admits them all, and does not end for lack of room: SGLang would then admit nobody until a request ends.
    """
    return most_pages_each(pool.pages, seats, rules)


def fill_pages(pool: Pool, seats: int, rules: Rules = NEWEST) -> int:
    """Pages of the request that takes what is left over after seating, but for what no admission takes."""
    return pool.pages - seats * seat_pages(pool, seats, rules) - free_after(last_page_full=False, rules=rules)


def choose_seats(pool: Pool, lead: int, rules: Rules = NEWEST) -> int:
    """As many seats as can be without a prompt too long for one prefill; else those with the shortest prompt.

    At most half the pool's pages, one for each and one that admission charges more, and half a page's decode steps, or
    what the lead leaves of a page, so that each seat has a step of its own in which to cross.
    """
    most = min((pool.pages - 1) // 2, pool.page_size // 2, pool.page_size - lead)
    allowed = range(_FEWEST_SEATS, most + 1)
    fitting = [n for n in allowed if fill_pages(pool, n, rules) * pool.page_size <= _LONGEST_PROMPT_TOKENS]
    return max(fitting) if fitting else min(allowed, key=lambda n: fill_pages(pool, n, rules))


def longest_prompt_pages(pool: Pool) -> int:
    """Pages of the longest prompt that the scenario can come to send on this pool."""
    choices = {choose_seats(pool, lead) for lead in possible_leads(pool)}
    return max(max(seat_pages(pool, seats), fill_pages(pool, seats)) for seats in choices)
