"""Whether the parts of one answer agree with each other: the stream, the token count and the final answer (pure).

SGLang's stream repeats all token ids so far in each event, unless it is launched with `--incremental-streaming-output`;
then each event has only the new ones (`managers/tokenizer_manager.py`, `_handle_batch_output`). The token count comes
from the scheduler, the ids are put together by the tokenizer manager, so one can be wrong without the other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_FIRST = re.compile(rb"(?:[0-9]+(?:,[0-9]+)*)?")
_MORE = re.compile(rb"(?:,[0-9]+)*")
_NO_IDS = b"?"


class StreamedIds:
    """The token ids of a streamed answer, put together from its events.

    They are kept as JSON text: a stream of a thousand tokens tells half a million ids in all, nearly all of them again.

    Args:
        incremental: whether each event has the new ids alone.

    Attributes:
        incremental: likewise.
        count: how many there are so far.
        contradiction: how an event contradicts those before it; empty while none does.
    """

    def __init__(self, incremental: bool = False) -> None:
        self.incremental = incremental
        self.contradiction = ""
        self.count = 0
        self._text = b""

    @property
    def ids(self) -> list[int]:
        """All so far."""
        ids: list[int] = json.loads(b"[" + self._text + b"]")
        return ids

    def seen(self, answer: Any) -> None:
        """Take in an event: any JSON value, as it is not to be relied on."""
        ids = output_ids(answer)
        if ids is None:
            return
        text = json.dumps(ids, separators=(",", ":")).encode()[1:-1]
        known = self._text
        if self.incremental:
            self._text = b",".join(filter(None, (known, text)))
            self.count += len(ids)
            return
        goes_on = text.startswith(known) and (not known or text[len(known) : len(known) + 1] in (b"", b","))
        if not goes_on and not self.contradiction:
            self.contradiction = f"the stream's token ids do not begin with the {self.count} that it had told before"
        self._text = text
        self.count = len(ids)

    def goes_on(self, event: bytes, place: int) -> int:
        """Take in an event by its bytes, where that is enough.

        Args:
            event: JSON.
            place: where the list of its ids begins, behind the bracket.

        Returns:
            where the list ends, when it goes on as it stood in the event before, in the same form. When it does not, 0,
            and it is not taken in: it may contradict that event, or be written otherwise.
        """
        known = self._text
        if self.incremental or not event.startswith(known, place):
            return 0
        begin = place + len(known)
        end = event.find(b"]", begin)
        more = event[begin:end] if end >= 0 else _NO_IDS
        if known and more[:1] == b"," and more[1:].isdigit():
            self.count += 1  # as nearly always
        elif (_MORE if known else _FIRST).fullmatch(more):
            self.count += more.count(b",") + (not known and more != b"")
        else:
            return 0
        self._text = event[place:end]
        return end


def output_ids(answer: Any) -> list[int] | None:
    """The token ids in an answer; None when it tells none."""
    ids = answer.get("output_ids") if isinstance(answer, Mapping) else None
    return ids if isinstance(ids, list) else None


def contradiction(ids: Sequence[int] | None, counted: int, finish: Mapping[str, Any], max_new_tokens: int) -> str:
    """How a complete answer contradicts itself; empty when it does not.

    Args:
        ids: its token ids, put together from the stream where it was one; None when it tells none.
        counted: its token count, `meta_info.completion_tokens`.
        finish: its finish reason.
        max_new_tokens: how many were asked for.
    """
    if finish.get("type") == "abort":
        return ""
    if ids is not None and len(ids) != counted:
        return f"{len(ids)} token ids, and a token count of {counted}"
    if counted > max_new_tokens:
        return f"{counted} new tokens, {max_new_tokens} were asked for"
    if finish.get("type") == "length" and finish.get("length", counted) != counted:
        return f"a finish reason of length {finish['length']}, and a token count of {counted}"
    return ""
