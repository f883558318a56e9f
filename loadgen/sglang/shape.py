"""What of a request decides what SGLang does with it: its lengths, and what its prompt shares with others (pure)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """The lengths of one request, in tokens."""

    prompt_tokens: int
    max_new_tokens: int

    @property
    def decode_steps(self) -> int:
        """Decode steps that the request takes part in."""
        return self.max_new_tokens - 1

    @property
    def final_tokens(self) -> int:
        """Tokens with a KV entry when the request ends."""
        return self.prompt_tokens + self.decode_steps


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
