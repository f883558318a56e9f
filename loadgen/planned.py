"""A request as a scenario plans it: its lengths, what it shares with others, and when its client hangs up (pure)."""

from __future__ import annotations

import random
from dataclasses import dataclass

from .pages import Shape


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of a prompt that requests can share: within a run the same key gives the same tokens.

    Of two that differ in length the shorter is the beginning of the longer.

    Attributes:
        key: names the tokens.
        tokens: how many.
    """

    key: int
    tokens: int


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request of a wave.

    Attributes:
        shape: its lengths.
        shared: what its prompt begins with, in order; the rest of the prompt is its own. Together they are no longer
            than the prompt.
        hang_up_tokens: new tokens, at least one, after which the client hangs up; None: never.
        hang_up_seconds: seconds after sending at which the client hangs up, when the answer is not complete by then.
        number: from it the prompt's own tokens come; None: its place among all that are sent in a run, from 1.
    """

    shape: Shape
    shared: tuple[Segment, ...] = ()
    hang_up_tokens: int | None = None
    hang_up_seconds: float | None = None
    number: int | None = None

    @property
    def hangs_up(self) -> bool:
        return self.hang_up_tokens is not None or self.hang_up_seconds is not None


class PromptMaker:
    """Prompts of random token ids.

    A request's own tokens depend on the seed and its number alone, and a shared segment's on the seed and its key: what
    is sent beside them changes neither.
    """

    def __init__(self, seed: int, token_ids: range) -> None:
        self._seed = seed
        self._token_ids = token_ids

    def prompt(self, number: int, request: PlannedRequest) -> list[int]:
        """The prompt's token ids.

        Args:
            number: the request's own, or its place among all that are sent in a run.
        """
        tokens: list[int] = []
        for segment in request.shared:
            tokens += self._tokens(f"segment {segment.key}", segment.tokens)
        return tokens + self._tokens(f"request {number}", request.shape.prompt_tokens - len(tokens))

    def witness(self, tokens: int) -> list[int]:
        """The prompt of all witnesses whose prompts have so many tokens."""
        return self._tokens(f"witness {tokens}", tokens)

    def _tokens(self, name: str, count: int) -> list[int]:
        return random.Random(f"{self._seed} {name}").choices(self._token_ids, k=count)
