"""What load can find wrong with a server that has not crashed (pure)."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class FindingKind(str, enum.Enum):
    """Kinds of finding."""

    WRONG_OUTPUT = "wrong_output"  # an answer is not what it is without pressure, or contradicts itself
    STARVED = "starved"  # a request was accepted and got no token while others were served


@dataclass(frozen=True)
class Occurrence:
    """Something that was found.

    Attributes:
        cause: one of few, without figures: findings of one kind and cause are told together.
        detail: the same in one sentence, with figures.
        elapsed: seconds since the load began.
        prompt_tokens, max_new_tokens: lengths of the request that shows it.
        count: how often it was found at once.
    """

    kind: FindingKind
    cause: str
    detail: str
    elapsed: float
    prompt_tokens: int
    max_new_tokens: int
    count: int = 1
