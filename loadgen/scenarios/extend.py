"""`extend`: prefill meets the exact end of the pool, in one piece and in chunks.

The mechanism it leans on is SGLang's admission together with chunked prefill (`PrefillAdder` in
`managers/schedule_policy.py` of 0.5.23). A prompt is admitted when it and one page more are less than what is free.
So the closest that a prefill can come to the end of the pool is to leave one page, and the decode step after it
takes that one.

Each round begins on an idle server, with requests of three kinds:

1. *holders* take all of the pool but what the probe is to have. One after another they cross, and end;
2. the *probe* is a prompt that is admitted beside them and leaves one page: of one token, of the first token of a page,
   all but the last of one, or anything between. A prefill is kept small, so that long ones come in several chunks;
3. *successors* wait behind it, each of as many pages as a holder gives back. So its prefill too leaves one page, which
   the next holder takes.

A pass of admissions that ends for lack of room closes admission until a request ends, and within a pass each request is
charged a page too many. So a probe must not be looked at in the pass that admits the last holder. In half of the rounds
the holders fill their prefills to the last token, which ends the pass for another reason, and all is sent in one
call. In the others, where holders are of any size, the probe is sent when the recorder has seen them all decode.

Every so often a round is a prompt that has the pool for itself, up to the last token that SGLang ever prefills, and
every so often one that it takes in and never serves (see `admission`): to see that nothing worse comes of it than
waiting. Its client hangs up after a while; until then it keeps everybody behind it waiting, which a run tells of as a
finding, `starved`. On a pool of more than
`longest_prompt_tokens` no prompt has the pool for itself: on a plain CPU its prefill would take minutes.

No prefill takes *exactly* the free pages, and none can: a request of `L` tokens with `f` pages free is admitted only if
`L + page_size < f * page_size`, so its `ceil(L / page_size)` pages are fewer than `f`; and between the chunks of a
prompt nothing decodes. With the radix cache on, eviction before a prefill makes room for its tokens and a page for each
of its requests (`mem_cache/allocation.py`, `alloc_paged_token_slots_extend`), with the same result. Only
`--enable-mixed-chunk` is different: running rows decode beside the chunks, and take pages that were promised to them.
With option `mixed_chunk` half of the rounds have a holder that crosses between two chunks of the probe; the last
chunk then needs just what is free.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from pydantic import Field

from ..requests.planned_request import PlannedRequest
from ..requests.wave import Wave
from ..sglang.admission import free_after
from ..sglang.launch_arguments import over_committing
from ..sglang.limits import longest_accepted_prompt, longest_admitted_prompt, longest_answered_prompt
from ..sglang.pages import Pool, crossing_once, pages_for
from ..sglang.releases import NEWEST
from ..sglang.rules import Rules
from ..sglang.server import EngineNeeds, ServerConfiguration
from ..sglang.shape import Shape
from .base import NoOptions, Observation, PoolBounds, Scenario

MIN_PAGE_SIZE = 16
MIN_POOL_PAGES = 8
_MOST_HOLDERS = 8
_LEAD_STEPS = 32
_FEW_PAGES = 4
_ALONE_EVERY = 8
_NEVER_SERVED_EVERY = 64
_FIRST_NEVER_SERVED = 4
_SERVED_MEANWHILE_TOKENS = 8
_STEPS_AFTER_CHUNKS = 4


Requests = tuple[PlannedRequest, ...]


class ExtendOptions(NoOptions):
    """Options of `extend`."""

    prefill_pages: int | None = Field(
        default=None, ge=1, le=8192, description="Pages of one prefill chunk; absent: an eighth of the pool."
    )
    longest_prompt_tokens: int = Field(
        default=4096, ge=1, description="Longest prompt that is prefilled; a pool of more is filled by several."
    )
    beyond: bool = Field(default=True, description="Also send prompts that SGLang takes in and never serves.")
    hang_up_seconds: float = Field(
        default=3.0,
        ge=0.5,
        le=60,
        description="Seconds after which the client of such a prompt hangs up; keep it well below engine.hang_seconds.",
    )
    mixed_chunk: bool = Field(default=False, description="Launch with --enable-mixed-chunk.")


class Extend(Scenario[ExtendOptions]):
    name = "extend"
    summary = "Prefill meets the exact end of the pool, in one piece and in chunks, with prompts of every length"
    bounds = PoolBounds(
        page_size=MIN_PAGE_SIZE,
        page_too_small="too small for requests to cross one after another",
        pages=MIN_POOL_PAGES,
        pages_at_fault="too few for requests side by side",
    )
    Options = ExtendOptions

    def __init__(self, server: ServerConfiguration, options: ExtendOptions, seed: int) -> None:
        super().__init__(server, options, seed)
        self._rounds = rounds(server.pool, options, seed, server.rules)
        self._then: Requests = ()
        self._holders = 0

    @classmethod
    def engine_needs(cls, pool: Pool, options: ExtendOptions) -> EngineNeeds:
        needs = over_committing(_prefill_pages(pool, options), pool)
        if not options.mixed_chunk:
            return needs
        return EngineNeeds((*needs.arguments, "--enable-mixed-chunk"), needs.environment)

    @classmethod
    def longest_request(cls, pool: Pool, options: ExtendOptions) -> int:
        if options.beyond or pool.tokens <= options.longest_prompt_tokens:
            return longest_accepted_prompt(pool) + 1
        return (_longest_pages(pool, options) + 1) * pool.page_size

    def next_wave(self, seen: Observation) -> Wave:
        if self._then and (not seen.open_requests or any(step.batch_size == self._holders for step in seen.steps)):
            wave, self._then = Wave(self._then), ()
            return wave
        if seen.open_requests:
            return Wave()
        first, self._then = next(self._rounds)
        self._holders = len(first)
        return Wave(first)


def rounds(pool: Pool, options: ExtendOptions, seed: int, rules: Rules = NEWEST) -> Iterator[tuple[Requests, Requests]]:
    """The requests of each round, which depend on nothing else: those sent first, and those sent when they decode."""
    chance = random.Random(seed)
    number = 0
    while True:
        number += 1
        if options.beyond and number % _NEVER_SERVED_EVERY == _FIRST_NEVER_SERVED:
            yield _never_served(pool, options, chance, rules)
        elif number % _ALONE_EVERY == 0 and pool.tokens <= options.longest_prompt_tokens:
            yield (PlannedRequest(_alone(pool, chance, rules)),), ()
        elif _has_several_chunks(pool, options) and chance.random() < 0.5:
            yield _between_chunks(pool, options, chance, rules), ()
        else:
            yield _side_by_side(pool, options, chance, rules)


def _never_served(pool: Pool, options: ExtendOptions, chance: random.Random, rules: Rules) -> tuple[Requests, Requests]:
    """A prompt that is taken in and never admitted, somebody who is served meanwhile, and one that waits behind it."""
    prompt = _near_ends(longest_admitted_prompt(pool, rules) + 1, longest_accepted_prompt(pool, rules), chance)
    never = PlannedRequest(Shape(prompt, 1), hang_up_seconds=options.hang_up_seconds)
    # Soon over, so that it is seen that the server then stands idle, and does not only serve somebody else first.
    served = PlannedRequest(Shape(1, _SERVED_MEANWHILE_TOKENS))
    return (served,), (never, PlannedRequest(Shape(1, 2)))


def _alone(pool: Pool, chance: random.Random, rules: Rules) -> Shape:
    """A prompt for the whole pool: of the last length that is answered, or of those that SGLang only prefills."""
    answered, admitted = longest_answered_prompt(pool, rules), longest_admitted_prompt(pool, rules)
    if chance.random() < 0.5:
        return Shape(_near_ends(answered - pool.page_size + 1, answered, chance), 2)
    # More than 0 may be asked for; no token comes.
    return Shape(_near_ends(answered + 1, admitted, chance), 0)


def _side_by_side(pool: Pool, options: ExtendOptions, chance: random.Random, rules: Rules) -> tuple[Requests, Requests]:
    most = pool.pages - free_after(last_page_full=False, rules=rules)
    page, chunk, longest = pool.page_size, _prefill_pages(pool, options), _longest_pages(pool, options)
    sizes = range(max(1, most - longest), most)
    # Holders that end with the end of a prefill, or fit into one.
    in_step = [pages for pages in sizes if pages % chunk == 0 or pages <= chunk]
    at_once = bool(in_step) and chance.random() < 0.5
    if at_once:
        held_pages, lead = chance.choice(in_step), 0
    else:
        held_pages, lead = chance.choice(sizes[-_FEW_PAGES:] if chance.random() < 0.5 else sizes), _lead(pool)
    fewest = pages_for(held_pages, longest)
    count = chance.randint(fewest, max(fewest, min(_MOST_HOLDERS, _most_holders(pool), held_pages)))
    held = _parts(held_pages, count, longest, chance)
    holders = [crossing_once(pages, lead + number, page) for number, pages in enumerate(held, start=1)]
    # The n-th comes when the n-th holder has ended, and crosses after all of them.
    successors = [crossing_once(pages, count, page) for pages in held]
    probe_pages = most - held_pages
    prompt = _near_ends((probe_pages - 1) * page + 1, probe_pages * page - 1, chance)
    # It does not cross, and if its last page allows it is there as long as holders are.
    probe = Shape(prompt, 1 + min(lead + count, probe_pages * page - prompt))
    first, then = tuple(map(PlannedRequest, holders)), tuple(map(PlannedRequest, [probe, *successors]))
    return ((*first, *then), ()) if at_once else (first, then)


def _between_chunks(pool: Pool, options: ExtendOptions, chance: random.Random, rules: Rules) -> Requests:
    """A probe in several chunks, and a holder that crosses between two of them, and so takes the page left for it.

    With mixed chunks a holder decodes with each chunk. It goes on until the probe is prefilled. The probe's last page
    has room for as many tokens as rows decode, by which SGLang cuts its last chunk.
    """
    page, chunk = pool.page_size, _prefill_pages(pool, options)
    # The holder's prefill ends with the end of a chunk, and leaves two at least to the probe.
    most = pool.pages - free_after(last_page_full=False, rules=rules)
    held = chance.choice(range(chunk, most - chunk, chunk))
    probe_pages = most - held
    chunks = pages_for(probe_pages, chunk)
    crossing = chance.randint(1, chunks - 1)
    holder = Shape(held * page + 1 - crossing, chunks + _STEPS_AFTER_CHUNKS)
    return PlannedRequest(holder), PlannedRequest(Shape(probe_pages * page - page // 2, 2))


def _has_several_chunks(pool: Pool, options: ExtendOptions) -> bool:
    """Whether chunks are mixed, and a pool's worth of them so many that one can follow a crossing, and not two."""
    chunk = _prefill_pages(pool, options)
    few = pages_for(pool.pages, chunk) + _STEPS_AFTER_CHUNKS <= pool.page_size
    return options.mixed_chunk and 2 * chunk + 2 <= pool.pages and few and pool.tokens <= options.longest_prompt_tokens


def _longest_pages(pool: Pool, options: ExtendOptions) -> int:
    """Pages of the longest prompt beside others; more than was asked for if otherwise too few fit side by side."""
    return max(options.longest_prompt_tokens // pool.page_size, pages_for(pool.pages, _most_holders(pool)))


def _most_holders(pool: Pool) -> int:
    """As many as have steps of their own in which to cross, after the lead and within a page."""
    return pool.page_size // 4


def _prefill_pages(pool: Pool, options: ExtendOptions) -> int:
    return options.prefill_pages or pool.pages // 8


def _lead(pool: Pool) -> int:
    """Decode steps of the holders before the first of them crosses, in which the probe has to arrive."""
    return min(_LEAD_STEPS, pool.page_size // 2)


def _near_ends(lowest: int, highest: int, chance: random.Random) -> int:
    """A number of a range; its ends and their neighbours often."""
    nearest = [lowest, min(lowest + 1, highest), max(highest - 1, lowest), highest]
    return chance.choice([*nearest, chance.randint(lowest, highest)])


def _parts(total: int, count: int, most: int, chance: random.Random) -> list[int]:
    """So many whole numbers from 1 to `most`, drawn at random, that sum up to `total`."""
    parts = []
    for left in reversed(range(count)):
        parts.append(chance.randint(max(1, total - left * most), min(most, total - left)))
        total -= parts[-1]
    return parts
