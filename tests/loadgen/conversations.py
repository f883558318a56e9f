"""Prints the small trace that comes with the project, `loadgen/traces/conversations.jsonl`, as it was made.

Conversations of several turns. All begin with one of two system prompts of whole blocks, and each turn's prompt begins
with that of the turn before, as far as its blocks are full.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

_BLOCK = 512
_CONVERSATIONS = 16


def records(seed: int = 20) -> list[dict[str, Any]]:
    """The trace's lines, in the order of their times; hash ids are numbered as they first come up."""
    chance = random.Random(seed)
    turns = sorted((turn for _ in range(_CONVERSATIONS) for turn in _conversation(chance)), key=lambda turn: turn[0])
    numbers: dict[tuple[Any, ...], int] = {}
    return [
        {
            "timestamp": at,
            "input_length": prompt,
            "output_length": answer,
            "hash_ids": [numbers.setdefault(block, len(numbers)) for block in blocks],
        }
        for at, prompt, answer, blocks in turns
    ]


def _conversation(chance: random.Random) -> Iterator[tuple[int, int, int, list[tuple[Any, ...]]]]:
    """Its turns: milliseconds, tokens of prompt and answer, and what names each block of the prompt."""
    system = chance.choice((1, 2))
    name, at = chance.getrandbits(32), chance.randrange(20_000)
    prompt = system * _BLOCK + chance.randint(20, 300)
    for turn in range(chance.randint(1, 4)):
        answer = chance.randint(20, 250)
        full = [(name, place) for place in range(system, prompt // _BLOCK)]
        # The last block is not full yet, and will be another one when it is.
        rest = [(name, turn, "rest")] if prompt % _BLOCK else []
        yield at, prompt, answer, [("system", system, place) for place in range(system)] + full + rest
        prompt += answer + chance.randint(20, 400)
        at += chance.randint(1000, 5000)


if __name__ == "__main__":
    for record in records():
        print(json.dumps(record))
