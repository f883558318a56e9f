"""A streamed answer of SGLang's `/generate`, as server-sent events. Each event says all that came so far.

So only the last event is read whole. In those before it the token count and the ids are looked for in the bytes:
reading a thousand events of up to a thousand tokens each would cost more than all else that the client does.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from .agreement import StreamedIds

_FIELD = b"data:"
_END = b"[DONE]"
# In JSON a quote inside a text is escaped, so that these are found in keys alone.
_COUNT_KEY = b'"completion_tokens":'
_COUNT = re.compile(_COUNT_KEY + rb" ?([0-9]+)[,}]")
_IDS_KEY = b'"output_ids":'
_ERROR_KEY = b'"error"'


class TokenTimes:
    """When the tokens of a streamed answer came.

    Attributes:
        first_seconds: from sending to the first token; None before it.
        gaps: seconds between one token and the next. Tokens that came together share the time since those before them.
        count: how many came.
    """

    def __init__(self, began: float) -> None:
        self.first_seconds: float | None = None
        self.gaps: list[float] = []
        self._began = began
        self.count = 0
        self._last = began

    def seen(self, tokens: int, at: float) -> None:
        """So many tokens had come at that time, by the monotonic clock."""
        new = tokens - self.count
        if new <= 0:
            return
        if self.first_seconds is None:
            self.first_seconds = at - self._began
        elif new == 1:
            self.gaps.append(at - self._last)
        else:
            self.gaps += [(at - self._last) / new] * new
        self.count, self._last = tokens, at


class StreamReader:
    """Reads a stream as its parts come.

    Args:
        began: when the request was sent, by the monotonic clock.
        enough_tokens: new tokens after which nothing more is wanted; None reads to the end.
        incremental: whether each event tells the new token ids alone.
        tokens: where to note when tokens came, where somebody else wants to see it, too.

    Attributes:
        tokens: when the tokens came.
        ids: which they are.
        ended: whether the end mark came.
        last: the last event before the end mark; None without one.
        error: an event that is an error, after which nothing more is wanted.
        enough: whether as many tokens came as were wanted.
    """

    def __init__(
        self,
        began: float,
        enough_tokens: int | None = None,
        incremental: bool = False,
        tokens: TokenTimes | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tokens = tokens or TokenTimes(began)
        self.ids = StreamedIds(incremental)
        self.ended = False
        self.last: Any = None
        self.error: Any = None
        self.enough = False
        self._enough_tokens = enough_tokens
        self._clock = clock
        self._rest = b""
        self._latest = b""

    def take(self, part: bytes) -> bool:
        """Take in what came of the stream. Whether nothing more is wanted.

        Raises:
            ValueError: an event is not JSON.
        """
        lines = (self._rest + part).split(b"\n")
        self._rest = lines.pop()
        return any(line.startswith(_FIELD) and self._event(line[len(_FIELD) :].strip()) for line in lines)

    def _event(self, data: bytes) -> bool:
        if self.ended:
            return False
        if data == _END:
            self.last = json.loads(self._latest) if self._latest else None
            self.ended = True
            return False
        self._latest = data
        count = self._glance(data)
        if count is None:
            event = json.loads(data)
            if isinstance(event, Mapping) and "error" in event:
                self.error = event
                return True
            self.ids.seen(event)
            count = new_tokens_of(event)
        self.tokens.seen(count, self._clock())
        if self._enough_tokens is not None and count >= self._enough_tokens:
            self.enough = True
        return self.enough

    def _glance(self, data: bytes) -> int | None:
        """The count of tokens in an event, its ids taken in as well; None when it has to be read whole."""
        place = data.rfind(_COUNT_KEY)
        if place < 0 or self.ids.incremental or _ERROR_KEY in data or data[:1] != b"{" or data[-1:] != b"}":
            return None
        count = _COUNT.match(data, place)
        ids = data.find(_IDS_KEY)
        if count is None or ids < 0:
            return None
        opens = ids + len(_IDS_KEY)
        if data[opens : opens + 1] != b"[" or not self.ids.seen_text(data[opens + 1 : data.find(b"]", opens)]):
            return None
        return int(count[1])


def meta_of(answer: Any) -> Mapping[str, Any]:
    """An answer's `meta_info`; empty where it has none."""
    meta = answer.get("meta_info") if isinstance(answer, Mapping) else None
    return meta if isinstance(meta, Mapping) else {}


def new_tokens_of(answer: Any) -> int:
    """How many tokens an answer says it has, 0 where it does not say."""
    tokens = meta_of(answer).get("completion_tokens")
    return tokens if isinstance(tokens, int) else 0
