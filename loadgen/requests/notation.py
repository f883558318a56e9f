"""Requests written in a line of text, so that waves can stand in a spec file: `101+30 102+31` (pure).

A request is `PROMPT+ANSWER`, both in tokens. Where it needs more, there may stand

- `NUMBER:` before it: the number from which its prompt's own tokens come. Without one it is the next after that of the
  request before it;
- `&KEYxTOKENS` after it, as often as there are shared segments: what the prompt begins with;
- `!TOKENS` after that: new tokens after which the client hangs up;
- `~SECONDS` last: seconds after which the client hangs up.

So `17:300+40&7x128!5` is request 17: 300 tokens of prompt, of which the first 128 are segment 7, an answer of 40
tokens, and a client that leaves after 5 of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..errors import LoadError
from ..sglang.shape import Segment, Shape
from .planned_request import PlannedRequest

ALLOWED = (
    "write PROMPT+ANSWER in tokens, as in 101+30, with NUMBER: before it, and after it, in this order, "
    "&KEYxTOKENS for each shared segment, !TOKENS and ~SECONDS for a client that hangs up, as in 17:300+40&7x128!5~0.5"
)
_LENGTH = r"\d{1,9}"
_REQUEST = re.compile(
    rf"(?:(?P<number>\d{{1,12}}):)?(?P<prompt>{_LENGTH})\+(?P<answer>{_LENGTH})"
    rf"(?P<shared>(?:&-?\d{{1,20}}x{_LENGTH})*)(?:!(?P<tokens>{_LENGTH}))?(?:~(?P<seconds>\d{{1,9}}(?:\.\d{{1,9}})?))?",
    re.ASCII,
)


class NotRequests(LoadError, ValueError):
    """A text is not requests in this notation; the message says which of them, and what is allowed."""


def read_requests(text: str, number: int = 1) -> tuple[PlannedRequest, ...]:
    """The requests that a text names, each with its number.

    Args:
        number: of the first request, if it has none of its own.

    Raises:
        NotRequests: it is no such text, or names none.
    """
    requests = []
    for place, word in enumerate(text.split(), 1):
        match = _REQUEST.fullmatch(word)
        if match is None:
            raise NotRequests(f"request {place}, {word[:60]!r}, is none; {ALLOWED}")
        request = _request(match, number)
        if fault := _fault(request):
            raise NotRequests(f"request {place}, {word[:60]!r}, {fault}")
        requests.append(request)
        number = (request.number or 0) + 1
    if not requests:
        raise NotRequests(f"there is no request; {ALLOWED}")
    return tuple(requests)


def write_requests(requests: Iterable[tuple[int, PlannedRequest]], expected: int = 1) -> str:
    """A text from which `read_requests` makes the same requests again.

    Args:
        requests: requests with their numbers.
        expected: the number that the first has when none is written.
    """
    words = []
    for number, request in requests:
        words.append(_word(request) if number == expected else f"{number}:{_word(request)}")
        expected = number + 1
    return " ".join(words)


def _request(match: re.Match[str], number: int) -> PlannedRequest:
    segments = (segment.split("x") for segment in match["shared"].split("&")[1:])
    return PlannedRequest(
        Shape(int(match["prompt"]), int(match["answer"])),
        shared=tuple(Segment(int(key), int(tokens)) for key, tokens in segments),
        hang_up_tokens=int(match["tokens"]) if match["tokens"] else None,
        hang_up_seconds=float(match["seconds"]) if match["seconds"] else None,
        number=int(match["number"]) if match["number"] else number,
    )


def _fault(request: PlannedRequest) -> str:
    shape = request.shape
    lengths = (shape.prompt_tokens, *(segment.tokens for segment in request.shared))
    if not all(lengths) or request.hang_up_tokens == 0:
        return "has a length of 0; allowed: at least 1 token each, except for the answer"
    shared = sum(segment.tokens for segment in request.shared)
    if shared > shape.prompt_tokens:
        return f"shares {shared} tokens; allowed: at most the {shape.prompt_tokens} of its prompt"
    return ""


def _word(request: PlannedRequest) -> str:
    shape = request.shape
    word = f"{shape.prompt_tokens}+{shape.max_new_tokens}"
    word += "".join(f"&{segment.key}x{segment.tokens}" for segment in request.shared)
    if request.hang_up_tokens is not None:
        word += f"!{request.hang_up_tokens}"
    if request.hang_up_seconds is not None:
        word += f"~{request.hang_up_seconds:.6f}".rstrip("0").rstrip(".")
    return word
