"""Answers with how sure the model was of each token (pure): what tells a wrong token from a near tie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PARAMETERS = {"return_logprob": True, "top_logprobs_num": 2}
"""What a request to `/generate` asks for beside its prompt and sampling parameters."""


@dataclass(frozen=True)
class Scored:
    """An answer.

    Attributes:
        ids: its token ids.
        logprobs: natural logarithm of each token's probability.
        runners_up: for each token the most probable other one and its logarithm; None where that is not told.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    runners_up: tuple[tuple[int, float] | None, ...]

    def lead(self, place: int, other: int) -> float | None:
        """By how much the token at a place was more probable than another, in nats; None when that is not known."""
        runner_up = self.runners_up[place]
        if runner_up is None or runner_up[0] != other:
            return None
        return abs(self.logprobs[place] - runner_up[1])


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
        runners_up = tuple(_runner_up(token, entries) for token, entries in zip(ids, top, strict=True))
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise ValueError(f"an answer without the logarithms that were asked for: {error!r}") from error
    if len(logprobs) != len(ids):
        raise ValueError(f"{len(ids)} token ids with {len(logprobs)} logarithms")
    return Scored(ids, logprobs, runners_up)


def first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    """Where two answers differ first, as far as both go; None when they do not."""
    if tuple(one[: len(other)]) == tuple(other[: len(one)]):
        return None
    return next(place for place, (left, right) in enumerate(zip(one, other, strict=False)) if left != right)


def _runner_up(token: int, entries: Any) -> tuple[int, float] | None:
    if isinstance(entries, (str, Mapping)):
        raise ValueError("not a list")
    others = [(int(entry[1]), float(entry[0])) for entry in entries or () if entry[1] != token]
    return max(others, key=lambda other: other[1], default=None)
