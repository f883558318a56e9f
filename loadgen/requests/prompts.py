"""Prompts of random token ids, which a seed makes again (pure)."""

from __future__ import annotations

import random

from .planned_request import PlannedRequest


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
