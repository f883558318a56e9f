"""Waves: requests planned together, and what is known of one that was sent (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..sglang.shape import Shape
from .planned_request import PlannedRequest


@dataclass(frozen=True)
class Wave:
    """Requests planned together, to be sent now and in this order.

    Attributes:
        requests: in the order in which they are sent.
        streamed: whether the client asks for a stream for each, which gives latencies, instead of one answer for all.
            A request whose client may hang up is always sent on its own.
    """

    requests: tuple[PlannedRequest, ...] = ()
    streamed: bool = False

    @classmethod
    def of(cls, shapes: Iterable[Shape], *, streamed: bool = False) -> Wave:
        """A wave of requests that share nothing and wait for their answers."""
        return cls(tuple(map(PlannedRequest, shapes)), streamed)


@dataclass(frozen=True, slots=True)
class SentWave:
    """A wave, and what the driver had seen when it was sent.

    Attributes:
        elapsed: seconds since the load began.
        decode_steps: decode steps that the driver had seen since the load began.
        open_requests: requests sent before it and not answered yet.
        first_number: the place of its first request among all that are sent in the run, from 1.
    """

    elapsed: float
    decode_steps: int
    open_requests: int
    first_number: int
    wave: Wave

    @property
    def numbered(self) -> Iterator[tuple[int, PlannedRequest]]:
        """Its requests, each with the number from which its own tokens come."""
        for number, request in enumerate(self.wave.requests, self.first_number):
            yield number if request.number is None else request.number, request
