"""What became of a request."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class RequestOutcome(str, enum.Enum):
    """Every way in which a request can end. Only `DONE` counts as success."""

    DONE = "done"
    TRUNCATED = "truncated"  # the answer ended by length, with fewer new tokens than were asked for
    ABORTED = "aborted"  # finish reason "abort" in a 200 answer
    ERROR = "error"  # an error object in a 200 answer, or an answer that is not of SGLang's form
    REFUSED = "refused"  # an HTTP status other than 200
    LOST = "lost"  # no connection, a connection that broke, or a stream without its end mark
    TIMED_OUT = "timed_out"
    HUNG_UP = "hung_up"  # given up by the client, as the scenario had planned it
    CANCELLED = "cancelled"  # taken back by the load itself, when it ended


FAILURES = frozenset(RequestOutcome) - {RequestOutcome.DONE, RequestOutcome.HUNG_UP, RequestOutcome.CANCELLED}


@dataclass(frozen=True, slots=True)
class Completion:
    """How one request ended.

    Attributes:
        detail: what the server or the connection said, for any outcome but done.
        new_tokens: tokens that came back.
        first_token_seconds: from sending to the first token; None where the answer does not tell.
        token_gaps: seconds between one token and the next; empty where the answer does not tell.
        seconds: from sending to the end.
        output_ids: ids of the tokens that came back, of a complete answer; empty where it tells none.
        contradiction: how stream, token count and final answer contradict each other; empty when they do not.
    """

    outcome: RequestOutcome
    seconds: float
    detail: str = ""
    new_tokens: int = 0
    first_token_seconds: float | None = None
    token_gaps: tuple[float, ...] = ()
    output_ids: tuple[int, ...] = ()
    contradiction: str = ""
