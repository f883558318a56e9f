"""What is known of a wave that was sent, and what of it makes the same load again (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .planned import PlannedRequest
from .scenarios.base import Wave


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
