"""What a simulated model answers: the same tokens to the same prompt, whatever runs beside it (pure).

Each token follows from all tokens before it. So an answer goes on as it would have when half of it stands in the
prompt, and another beginning of a prompt gives another answer: all that witnesses and their calibration rest on.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterable
from typing import Any

_FACTOR = 2654435761
_CHOSEN_LOGPROB = -0.05
_OTHER_LOGPROB = -6.0


def begin(prompt: Iterable[int]) -> int:
    """The state of a model that has read a prompt."""
    return zlib.crc32(array("I", prompt).tobytes())


def next_token(state: int, vocabulary: int) -> int:
    """The token that follows."""
    return (state * _FACTOR >> 16) % vocabulary


def read_token(state: int, token: int) -> int:
    """The state of a model that has read one token more."""
    return zlib.crc32(token.to_bytes(4, "little"), state)


def page_contents(tokens: Iterable[int], page_size: int) -> list[int]:
    """A value for each full page that says what it and all pages before it hold."""
    data = array("I", tokens)
    values, state = [], 0
    for begins in range(0, len(data) - page_size + 1, page_size):
        state = zlib.crc32(data[begins : begins + page_size].tobytes(), state)
        # A page at another place is another page, whatever it holds.
        values.append(state << 20 | begins // page_size)
    return values


def logprobs(tokens: Iterable[int], vocabulary: int, count: int) -> dict[str, Any]:
    """How probable each token was, in SGLang's form: the chosen one by far."""
    chosen, top = [], []
    for token in tokens:
        chosen.append([_CHOSEN_LOGPROB, token, None])
        others = [[_OTHER_LOGPROB - place, (token + place) % vocabulary, None] for place in range(1, count)]
        top.append([chosen[-1], *others])
    return {"output_token_logprobs": chosen, "output_top_logprobs": top}
