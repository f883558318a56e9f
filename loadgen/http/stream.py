"""A streamed answer of SGLang's `/generate`, as server-sent events. Each event says all that came so far.

So only the last event is read whole. Of those before it the ids are compared, as bytes, with those of the event before:
reading a thousand events of up to a thousand tokens each would cost more than all else that the client does.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from .agreement import StreamedIds

_FIELD = b"data:"
_END_MARK = b"[DONE]"
_BEGIN, _END = b"data: {", b"}\n\n"
# In JSON a quote inside a text is escaped, so that these are found in keys alone.
_IDS_KEY = b'"output_ids":['
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
        # Nearly every part is one event, of a stream that goes on. It is done for every token.
        ids = part.find(_IDS_KEY)
        if (
            ids >= 0
            and part.startswith(_BEGIN)
            and part.endswith(_END)
            and part.find(b"\n") == len(part) - 2
            and not self._rest
            and not self.ended
        ):
            end = self.ids.goes_on(part, ids + len(_IDS_KEY))
            # An error is a key beside the ids: among them there is nothing but digits.
            if end > 0 and part.find(_ERROR_KEY, end) < 0 and part.find(_ERROR_KEY, 0, ids) < 0:
                self._latest = part
                return self._counted(self.ids.count)
        lines = (self._rest + part).split(b"\n")
        self._rest = lines.pop()
        return any(self._event(line[len(_FIELD) :].strip()) for line in lines if line.startswith(_FIELD))

    def _event(self, data: bytes) -> bool:
        if self.ended:
            return False
        if data == _END_MARK:
            self.last = read_json(self._latest.removeprefix(_FIELD)) if self._latest else None
            self.ended = True
            return False
        self._latest = data
        event = read_json(data)
        if isinstance(event, Mapping) and "error" in event:
            self.error = event
            return True
        self.ids.seen(event)
        return self._counted(new_tokens_of(event))

    def _counted(self, count: int) -> bool:
        self.tokens.seen(count, self._clock())
        if self._enough_tokens is not None and count >= self._enough_tokens:
            self.enough = True
        return self.enough


def read_json(text: bytes) -> Any:
    """What an answer or an event is.

    Raises:
        ValueError: it is no JSON, or nested deeper than any answer of SGLang's.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def meta_of(answer: Any) -> Mapping[str, Any]:
    """An answer's `meta_info`; empty where it has none."""
    meta = answer.get("meta_info") if isinstance(answer, Mapping) else None
    return meta if isinstance(meta, Mapping) else {}


def new_tokens_of(answer: Any) -> int:
    """How many tokens an answer says it has, 0 where it does not say."""
    tokens = meta_of(answer).get("completion_tokens")
    return tokens if isinstance(tokens, int) else 0
