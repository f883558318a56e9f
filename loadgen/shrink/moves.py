"""What is tried to make a case shorter: each move yields cases, the boldest first.

A move need not know whether what it yields is shorter or was tried before; `search` does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

from ..requests.planned_request import PlannedRequest
from ..sglang.pages import pages_for
from ..sglang.shape import Shape
from .case import Case

Move = Callable[[Case], Iterator[Case]]

_MOST_LEFT_FREE = 4
_FEW_REQUESTS = 3
_FEW_TOKENS = 8
_SHORTEST_ANSWER = 2
"""With one token an answer comes out of the prefill, and takes part in no decode step."""


def first_waves(case: Case) -> Iterator[Case]:
    """Its beginning alone, the shortest first: what was sent after the crash did not matter."""
    length, longer = 1, 2
    while length < len(case.waves):
        yield case.only_waves(range(length))
        length, longer = longer, length + longer


def fewer_waves(case: Case) -> Iterator[Case]:
    """Without some of its waves, of which many at first."""
    for taken in _chunks(len(case.waves)):
        yield case.only_waves(place for place in range(len(case.waves)) if place not in taken)


def fewer_requests(case: Case) -> Iterator[Case]:
    """Without some of its requests, of which many at first."""
    count = len(case.requests)
    for taken in _chunks(count):
        yield case.only(place for place in range(count) if place not in taken)


def pairs(case: Case) -> Iterator[Case]:
    """Two requests, sent together, one of which has taken the pages of all others, but for a few that stay free.

    With fewer requests there is slack in the pool, and what crashes at its end is lost: so the pages go to one of
    them, and both may answer for as long as the longest did.
    """
    requests = case.requests
    if len(requests) <= 2 and len(case.waves) == 1:
        return
    longest = max(request.shape.max_new_tokens for request in requests)
    for answers, left_free in itertools.product((1, longest), range(1, _MOST_LEFT_FREE + 1)):
        for pair in itertools.permutations(requests, 2):
            for grown in (0, 1):
                filled = _filled(case, pair, grown, left_free)
                if filled is not None:
                    yield case.together([_answering(request, least=answers) for request in filled])


def merged(case: Case) -> Iterator[Case]:
    """Without some of its requests, whose pages another one takes; or a page more or less, as admission counts them."""
    requests, page_size = case.requests, case.pool.page_size
    takers = sorted(range(len(requests)), key=lambda place: -requests[place].shape.prompt_tokens)
    for taken in _chunks(len(requests)):
        pages = sum(pages_for(requests[place].shape.prompt_tokens, page_size) for place in taken)
        for taker in [place for place in takers if place not in taken][:3]:
            for more in (0, 1, -1, len(taken)):
                grown = _with_prompt(requests[taker], requests[taker].shape.prompt_tokens + (pages + more) * page_size)
                if grown.shape.prompt_tokens < case.pool.tokens:
                    given = case.with_requests({taker: grown})
                    yield given.only(place for place in range(len(requests)) if place not in taken)


def simpler_times(case: Case) -> Iterator[Case]:
    """All at once, then waves joined to those before them, then waves that wait for less."""
    yield case.together(case.requests)
    yield replace(case, waves=tuple(replace(wave, idle=False, after_steps=0, after_seconds=0.0) for wave in case.waves))
    for place in range(1, len(case.waves)):
        before, wave = case.waves[place - 1 : place + 1]
        joined = replace(before, requests=before.requests + wave.requests)
        yield replace(case, waves=(*case.waves[: place - 1], joined, *case.waves[place + 1 :]))
    for place, wave in enumerate(case.waves):
        yield case.with_wave(place, replace(wave, idle=False, after_steps=0, after_seconds=0.0))
        yield case.with_wave(place, replace(wave, after_seconds=0.0))
        yield case.with_wave(place, replace(wave, idle=False))
        for steps in _lower(wave.after_steps, 0):
            yield case.with_wave(place, replace(wave, after_steps=steps))


def plainer_requests(case: Case) -> Iterator[Case]:
    """Without shared segments, hang-ups and streams, of all and then of each."""
    plain = {place: _plain(request) for place, request in enumerate(case.requests)}
    calm = replace(case, waves=tuple(replace(wave, streamed=False) for wave in case.waves))
    yield calm.with_requests(plain)
    yield calm
    for place, request in plain.items():
        yield case.with_requests({place: request})
    for place, wave in enumerate(case.waves):
        yield case.with_wave(place, replace(wave, streamed=False))


def shorter_answers(case: Case) -> Iterator[Case]:
    """Shorter answers, and with them longer prompts, so that boundaries are crossed as much earlier."""
    requests = case.requests
    longest = max(request.shape.max_new_tokens for request in requests)
    for most in _lower(longest, _SHORTEST_ANSWER):
        cut = {place: _answering(request, most=most) for place, request in enumerate(requests)}
        yield case.with_requests(cut)
        yield case.with_requests({place: _ahead(request, longest - most) for place, request in enumerate(requests)})
    for place, request in enumerate(requests):
        answer = request.shape.max_new_tokens
        for most in _lower(answer, _SHORTEST_ANSWER):
            yield case.with_requests({place: _answering(request, most=most)})
            yield case.with_requests({place: _ahead(request, answer - most)})
    if len(requests) <= _FEW_REQUESTS:
        # What one gains may depend on another that ends, or crosses, as much earlier.
        for (place, request), (other, beside) in itertools.permutations(enumerate(requests), 2):
            for tokens, fewer in itertools.product(range(1, _FEW_TOKENS), repeat=2):
                yield case.with_requests({place: _ahead(request, tokens), other: _ahead(beside, fewer)})
                ended = _answering(beside, most=max(_SHORTEST_ANSWER, beside.shape.max_new_tokens - fewer))
                yield case.with_requests({place: _ahead(request, tokens), other: ended})


def shorter_prompts(case: Case) -> Iterator[Case]:
    """Fewer pages of prompt, of all and then of each."""
    requests, page_size = case.requests, case.pool.page_size
    pages = [pages_for(request.shape.prompt_tokens, page_size) for request in requests]

    def cut(place: int, most: int) -> PlannedRequest:
        """Of at most so many pages, with as many tokens in the last one."""
        less = max(0, pages[place] - most) * page_size
        return _with_prompt(requests[place], requests[place].shape.prompt_tokens - less)

    for most in _lower(max(pages), 1):
        yield case.with_requests({place: cut(place, most) for place in range(len(requests))})
    for place, held in enumerate(pages):
        for most in _lower(held, 1):
            yield case.with_requests({place: cut(place, most)})


def rounder_prompts(case: Case) -> Iterator[Case]:
    """Prompts of one token, or of whole pages, instead of what lies between."""
    requests, page_size = case.requests, case.pool.page_size
    whole = {
        place: _with_prompt(request, pages_for(request.shape.prompt_tokens, page_size) * page_size)
        for place, request in enumerate(requests)
    }
    in_one_page = {
        place: _with_prompt(requests[place], 1)
        for place, request in whole.items()
        if request.shape.prompt_tokens == page_size
    }
    yield case.with_requests(whole | in_one_page)
    yield case.with_requests(whole)
    for rounded in (in_one_page, whole):
        for place, request in rounded.items():
            yield case.with_requests({place: request})


MOVES: dict[str, Move] = {
    "the first waves alone": first_waves,
    "two requests that take the pages of all": pairs,
    "fewer waves": fewer_waves,
    "fewer requests": fewer_requests,
    "fewer requests, their pages to another": merged,
    "simpler times": simpler_times,
    "plainer requests": plainer_requests,
    "shorter answers": shorter_answers,
    "shorter prompts": shorter_prompts,
    "rounder prompts": rounder_prompts,
}
"""The moves by what they do, in the order in which they are tried."""


def _chunks(count: int) -> Iterator[range]:
    """Stretches of places to take out, never all: halves, quarters, ... and single ones, the last places first."""
    size = count - 1
    while size > 0:
        for end in range(count, 0, -size):
            yield range(max(0, end - size), end)
        size //= 2


def _lower(value: int, lowest: int) -> Iterator[int]:
    """Values below, the lowest first and then ever nearer."""
    distance = value - lowest
    while distance > 0:
        yield value - distance
        distance //= 2


def _filled(
    case: Case, pair: tuple[PlannedRequest, ...], grown: int, left_free: int
) -> tuple[PlannedRequest, ...] | None:
    """The pair, one of which has grown or shrunk by whole pages until so many are left free; None where it cannot."""
    page_size = case.pool.page_size
    held = sum(pages_for(request.shape.prompt_tokens, page_size) for request in pair)
    tokens = pair[grown].shape.prompt_tokens + (case.pool.pages - left_free - held) * page_size
    if tokens < 1:
        return None
    return tuple(_with_prompt(r, tokens) if place == grown else r for place, r in enumerate(pair))


def _with_prompt(request: PlannedRequest, tokens: int) -> PlannedRequest:
    """With a prompt of that length, or of what it shares where that is more."""
    shared = sum(segment.tokens for segment in request.shared)
    return replace(request, shape=Shape(max(1, tokens, shared), request.shape.max_new_tokens))


def _answering(request: PlannedRequest, least: int = 1, most: int | None = None) -> PlannedRequest:
    """With an answer of at least, or at most, so many tokens."""
    answer = max(request.shape.max_new_tokens, least)
    answer = answer if most is None else max(1, min(answer, most))
    return replace(request, shape=Shape(request.shape.prompt_tokens, answer))


def _ahead(request: PlannedRequest, tokens: int) -> PlannedRequest:
    """The request as it is that many decode steps later: a longer prompt, a shorter answer."""
    tokens = min(tokens, max(0, request.shape.max_new_tokens - _SHORTEST_ANSWER))
    shape = request.shape
    return replace(request, shape=Shape(shape.prompt_tokens + tokens, shape.max_new_tokens - tokens))


def _plain(request: PlannedRequest) -> PlannedRequest:
    return replace(request, shared=(), hang_up_tokens=None, hang_up_seconds=None)
