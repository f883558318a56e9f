"""Whether the parts of one answer agree with each other: the stream, the token count and the final answer (pure).

SGLang's stream repeats all token ids so far in each event, unless it is launched with `--incremental-streaming-output`;
then each event has only the new ones (`managers/tokenizer_manager.py`, `_handle_batch_output`). The token count comes
from the scheduler, the ids are put together by the tokenizer manager, so one can be wrong without the other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

_PLAIN = b"0123456789,"


class StreamedIds:
    """The token ids of a streamed answer, put together from its events.

    They are kept as they come, as JSON text: a stream of a thousand tokens tells half a million ids in all.

    Args:
        incremental: whether each event has the new ids alone.

    Attributes:
        incremental: likewise.
        contradiction: how an event contradicts those before it; empty while none does.
    """

    def __init__(self, incremental: bool = False) -> None:
        self.incremental = incremental
        self.contradiction = ""
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
        if self.incremental:
            self._text = b",".join(filter(None, (self._text, text)))
        else:
            self._replace(text)

    def seen_text(self, text: bytes) -> bool:
        """Take in an event of a stream that is not incremental, by its ids as they stand in it between the brackets.

        Returns:
            whether they are ids with nothing but commas between them; they are not taken in when they are not.
        """
        known = len(self._text) if text.startswith(self._text) else 0
        if text[known:].translate(None, _PLAIN):
            return False
        self._replace(text)
        return True

    def _replace(self, text: bytes) -> None:
        known = self._text
        goes_on = text.startswith(known) and (not known or text[len(known) : len(known) + 1] in (b"", b","))
        if not goes_on and not self.contradiction:
            self.contradiction = f"the stream's token ids do not begin with the {len(self.ids)} that it had told before"
        self._text = text


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
