"""Claims about the calibration: an engine that answers alike in any batch is taken, any other is not, with a reason."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.checks.calibration import NEW_TOKENS, Calibration, calibrate, lengths
from loadgen.http.client import GenerateRequest
from loadgen.http.logprobs import Scored
from loadgen.sglang.pages import Pool, pages_for

pytestmark = pytest.mark.anyio

POOL = Pool(128, 32)
Quirk = Callable[[Scored, int], Scored]
"""What a server does to an answer, by the size of the batch it is in."""


def answer(prompt: Sequence[int], count: int) -> Scored:
    """Each token follows from all before it, as in a model whose KV cache is right."""
    so_far = list(prompt)
    ids = []
    for _ in range(count):
        token = random.Random(str(so_far)).randrange(256)
        ids.append(token)
        so_far.append(token)
    return Scored(tuple(ids), (-0.2,) * count, tuple({(token + 1) % 256: -2.0} for token in ids))


async def calibrated(quirk: Quirk = lambda scored, _batch: scored, pool: Pool = POOL) -> Calibration:
    async def ask(requests: Sequence[GenerateRequest]) -> list[Scored]:
        return [quirk(answer(one.prompt, one.max_new_tokens), len(requests)) for one in requests]

    return await calibrate(ask, pool, 4096, 7, range(256))


def louder(by: float) -> Quirk:
    """Logarithms that change with the batch."""

    def quirk(scored: Scored, batch: int) -> Scored:
        return Scored(scored.ids, tuple(one + by * batch for one in scored.logprobs), scored.others)

    return quirk


def flips(lead: float) -> Quirk:
    """A token that changes with the batch, after one that was ahead by so much."""

    def quirk(scored: Scored, batch: int) -> Scored:
        others = tuple({(token + 1) % 256: -0.2 - lead} for token in scored.ids)
        ids = scored.ids if batch == 1 else (*scored.ids[:5], *others[5], *scored.ids[6:])
        return Scored(ids, scored.logprobs, others)

    return quirk


async def test_an_engine_that_answers_alike_in_any_batch_is_taken() -> None:
    calibration = await calibrated()
    assert (calibration.off, calibration.noise, calibration.margin) == ("", 0.0, 0.0)
    assert calibration.tokens > 5 * NEW_TOKENS


async def test_probabilities_that_change_a_little_set_the_margin() -> None:
    calibration = await calibrated(louder(0.001))
    assert not calibration.off
    assert calibration.margin > calibration.noise > 0.001


async def test_a_near_tie_in_the_calibration_sets_the_margin() -> None:
    calibration = await calibrated(flips(0.02))
    assert not calibration.off
    assert calibration.noise == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("quirk", "said"), [(louder(0.5), "probabilities change by"), (flips(1.7), "differs at token 6")]
)
async def test_an_engine_that_is_not_deterministic_enough_is_told_off(quirk: Quirk, said: str) -> None:
    off = (await calibrated(quirk)).off
    assert said in off and "not deterministic enough" in off


async def test_a_model_that_does_not_look_at_its_cache_is_told_off() -> None:
    def blind(scored: Scored, _batch: int) -> Scored:
        return Scored((3,) * len(scored.ids), scored.logprobs, scored.others)

    assert "do not depend on what stands in the KV cache" in (await calibrated(blind)).off


async def test_a_server_that_tells_no_ids_is_told_off() -> None:
    assert "no token ids" in (await calibrated(lambda _scored, _batch: Scored((), (), ()))).off


async def test_a_pool_in_which_there_is_pressure_at_once_is_told_off() -> None:
    assert "too small" in (await calibrated(pool=Pool(128, 6))).off


@given(st.integers(2, 4096), st.integers(2, 5000), st.integers(2, 40_000))
def test_prompts_take_no_more_than_half_of_the_pool_and_of_the_context(page: int, pages: int, longest: int) -> None:
    chosen = lengths(Pool(page, pages), longest)
    assert sum(pages_for(length + NEW_TOKENS, page) for length in chosen) <= pages // 2
    assert all(1 < length <= longest - NEW_TOKENS for length in chosen)
