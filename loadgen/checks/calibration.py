"""Whether a server's greedy answers can be held against each other, found out before there is any pressure.

Some prompts are asked one by one, then several in one batch, in batches of growing size, and once more with half of the
answer in the prompt, which is what a request goes through that is retracted and admitted again. From the logarithms of
the tokens' probabilities it is seen how much these depend on the batch. Two tokens that are closer than that are a
*near tie*, where one answer is as right as the other.

And it is seen whether answers depend on the prompt at all: with a model of tiny weights each token depends on the one
before it alone, and a wrong page would never be seen.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from ..http.client import GenerateRequest
from ..http.logprobs import Scored, first_difference
from ..sglang.admission import charge
from ..sglang.pages import Pool

NEW_TOKENS = 32
_MOST_PROMPTS = 8
_FEWEST_PROMPTS = 2
_USUAL_PAGE = 128
# Of what is seen in a few hundred tokens, for the millions of a soak.
_SAFETY = 8.0
_MOST_MARGIN = 1.0

Ask = Callable[[Sequence[GenerateRequest]], Awaitable[Sequence[Scored]]]
"""Asks the server for scored answers, all in one batch."""


@dataclass(frozen=True)
class Calibration:
    """What was found out.

    Attributes:
        off: why answers cannot be held against each other; empty when they can.
        margin: tokens whose logarithms are no further apart than this are a near tie, in nats.
        noise: the most that a token's logarithm changed with the batch, in nats.
        tokens: how many tokens were compared.
    """

    off: str = ""
    margin: float = 0.0
    noise: float = 0.0
    tokens: int = 0


def lengths(pool: Pool, longest: int) -> tuple[int, ...]:
    """Lengths of prompts around those of pages, which with their answers take no more than half of a pool.

    Args:
        longest: tokens that prompt and answer may have together.
    """
    page = min(pool.page_size, _USUAL_PAGE)
    wanted = (page // 2, page - 3, page, page + 1, 3 * page // 2, 2 * page - 5, 2 * page + 40, 3 * page - 1)
    chosen: list[int] = []
    left = pool.pages // 2
    for length in wanted[:_MOST_PROMPTS]:
        needed = charge(length + NEW_TOKENS, pool.page_size) // pool.page_size
        if length > 1 and length + NEW_TOKENS <= longest and needed <= left:
            chosen.append(length)
            left -= needed
    return tuple(chosen)


async def calibrate(ask: Ask, pool: Pool, longest: int, seed: int, token_ids: range) -> Calibration:
    """Ask, and judge what is answered.

    Raises:
        ValueError: the server refused, or an answer is not of SGLang's form.
        HttpError: there was no answer.
    """
    prompts = [_tokens(seed, f"prompt {length}", length, token_ids) for length in lengths(pool, longest)]
    if len(prompts) < _FEWEST_PROMPTS:
        return Calibration(off="the pool is too small for a calibration without pressure")
    alone = [answer for prompt in prompts for answer in await ask([GenerateRequest(prompt, NEW_TOKENS)])]
    if not all(answer.ids for answer in alone):
        return Calibration(off="the answers of a calibration have no token ids")
    spread = _Spread()
    size = 2
    while size <= len(prompts):
        for begin in range(0, len(prompts) - size + 1, size):
            together = await ask([GenerateRequest(prompt, NEW_TOKENS) for prompt in prompts[begin : begin + size]])
            for one, other in zip(alone[begin : begin + size], together, strict=True):
                spread.add(f"in a batch of {size}", one, other)
        size *= 2
    half = NEW_TOKENS // 2
    resumed = [GenerateRequest([*p, *a.ids[:half]], NEW_TOKENS - half) for p, a in zip(prompts, alone, strict=True)]
    for one, other in zip(alone, await ask(resumed), strict=True):
        spread.add("with half of it in the prompt", _behind(one, half), other)
    calibration = spread.judged()
    if calibration.off:
        return calibration
    changed = [_other_beginning(prompt, seed, token_ids) for prompt in prompts]
    others = await ask([GenerateRequest(prompt, NEW_TOKENS) for prompt in changed])
    if all(first_difference(one.ids, other.ids) is None for one, other in zip(alone, others, strict=True)):
        return Calibration(off="answers do not depend on what stands in the KV cache: a wrong page would not be seen")
    return calibration


class _Spread:
    """How far answers to the same prompts are apart."""

    def __init__(self) -> None:
        self._noise = 0.0
        self._tokens = 0
        self._off = ""

    def add(self, how: str, alone: Scored, other: Scored) -> None:
        differs = first_difference(alone.ids, other.ids)
        same = min(len(alone.ids), len(other.ids)) if differs is None else differs
        self._tokens += same
        for one, two in _pairs(alone, other, same):
            self._noise = max(self._noise, abs(one - two))
        if differs is None:
            return
        lead = alone.lead(differs, other.ids[differs])
        if lead is None or lead > _MOST_MARGIN:
            apart = f", {lead:.3g} nats less probable" if lead is not None else ", not even its fifth choice"
            self._off = (
                f"an answer asked alone and {how} differs at token {differs + 1} of {len(alone.ids)}"
                f"{apart}: the engine is not deterministic enough"
            )
        else:
            self._noise = max(self._noise, lead)

    def judged(self) -> Calibration:
        margin = _SAFETY * self._noise
        if not self._off and margin > _MOST_MARGIN:
            self._off = (
                f"probabilities change by {self._noise:.3g} nats with the batch: the engine is not deterministic enough"
            )
        return Calibration(self._off, margin, self._noise, self._tokens)


def _pairs(one: Scored, other: Scored, count: int) -> Iterator[tuple[float, float]]:
    return zip(one.logprobs[:count], other.logprobs[:count], strict=True)


def _behind(answer: Scored, place: int) -> Scored:
    return Scored(answer.ids[place:], answer.logprobs[place:], answer.others[place:])


def _other_beginning(prompt: Sequence[int], seed: int, token_ids: range) -> list[int]:
    half = len(prompt) // 2
    return [*_tokens(seed, f"other {len(prompt)}", half, token_ids), *prompt[half:]]


def _tokens(seed: int, name: str, count: int, token_ids: range) -> list[int]:
    return random.Random(f"{seed} calibration {name}").choices(token_ids, k=count)
