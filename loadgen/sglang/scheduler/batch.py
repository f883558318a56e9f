"""What the model of the scheduler works on, and what it tells: releases, decode steps, batches."""

from __future__ import annotations

from dataclasses import dataclass, field

from .request import Request


@dataclass(eq=False)
class Batch:
    """schedule_batch.py, ScheduleBatch.

    Attributes:
        is_full: admits nobody until a row leaves. It belongs to the object, so it is lost when the running batch was
            empty and a prefill batch takes its place.
        unfinished: the request whose prompt this prefill does not bring to its end.
    """

    requests: list[Request] = field(default_factory=list)
    is_prefill: bool = False
    is_full: bool = False
    unfinished: Request | None = None

    def drop(self, leaving: list[Request]) -> None:
        """filter_batch."""
        self.requests = _without(self.requests, leaving)


def _without(requests: list[Request], leaving: list[Request]) -> list[Request]:
    if not leaving:
        return requests
    gone = set(map(id, leaving))
    return [request for request in requests if id(request) not in gone]
