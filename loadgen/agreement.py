"""Whether the parts of one answer agree with each other: the stream, the token count and the final answer (pure).

SGLang's stream repeats all token ids so far in each event, unless it is launched with `--incremental-streaming-output`;
then each event has only the new ones (`managers/tokenizer_manager.py`, `_handle_batch_output`). The token count comes
from the scheduler, the ids are put together by the tokenizer manager, so one can be wrong without the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class StreamedIds:
    """The token ids of a streamed answer, put together from its events.

    Args:
        incremental: whether each event has the new ids alone.

    Attributes:
        ids: all so far.
        contradiction: how an event contradicts those before it; empty while none does.
    """

    def __init__(self, incremental: bool = False) -> None:
        self.ids: list[int] = []
        self.contradiction = ""
        self._incremental = incremental

    def seen(self, answer: Any) -> None:
        """Take in an event: any JSON value, as it is not to be relied on."""
        ids = output_ids(answer)
        if ids is None:
            return
        if self._incremental:
            self.ids.extend(ids)
            return
        known = len(self.ids)
        if not self.contradiction and ids[:known] != self.ids:
            self.contradiction = f"the stream's token ids do not begin with the {known} that it had told before"
        self.ids = ids


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
