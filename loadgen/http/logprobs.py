"""Answers with how sure the model was of each token (pure): what tells a wrong token from a near tie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PARAMETERS = {"return_logprob": True, "top_logprobs_num": 5}
"""What a request to `/generate` asks for beside its prompt and sampling parameters. In 16 bits several tokens can be
exactly as probable as each other."""


@dataclass(frozen=True)
class Scored:
    """An answer.

    Attributes:
        ids: its token ids.
        logprobs: natural logarithm of each token's probability.
        others: for each token the most probable other ones, with their logarithms.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    others: tuple[Mapping[int, float], ...]

    def lead(self, place: int, other: int) -> float | None:
        """How far the probabilities of the token at a place and another are apart, in nats; None: that far behind."""
        logprob = self.others[place].get(other)
        return None if logprob is None else abs(self.logprobs[place] - logprob)


def read_scored(answer: Any) -> Scored:
    """Read an answer of `/generate`.

    Raises:
        ValueError: it is not of SGLang's form.
    """
    try:
        meta = answer["meta_info"]
        ids = tuple(int(token) for token in answer["output_ids"])
        chosen, top = meta["output_token_logprobs"], meta["output_top_logprobs"]
        logprobs = tuple(float(entry[0]) for entry in chosen)
        others = tuple(_others(token, entries) for token, entries in zip(ids, top, strict=True))
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise ValueError(f"an answer without the logarithms that were asked for: {error!r}") from error
    if len(logprobs) != len(ids):
        raise ValueError(f"{len(ids)} token ids with {len(logprobs)} logarithms")
    return Scored(ids, logprobs, others)


def first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    """Where two answers differ first, as far as both go; None when they do not."""
    if tuple(one[: len(other)]) == tuple(other[: len(one)]):
        return None
    return next(place for place, (left, right) in enumerate(zip(one, other, strict=False)) if left != right)


def _others(token: int, entries: Any) -> Mapping[int, float]:
    if isinstance(entries, (str, Mapping)):
        raise ValueError("not a list")
    return {int(entry[1]): float(entry[0]) for entry in entries or () if entry[1] != token}
