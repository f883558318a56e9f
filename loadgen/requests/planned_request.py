"""A request as a scenario plans it: its lengths, what it shares with others, and when its client hangs up (pure)."""

from __future__ import annotations

from dataclasses import dataclass

from ..sglang.shape import Segment, Shape


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request of a wave.

    Attributes:
        shape: its lengths.
        shared: what its prompt begins with, in order; the rest of the prompt is its own. Together they are no longer
            than the prompt.
        hang_up_tokens: new tokens, at least one, after which the client hangs up; None: never.
        hang_up_seconds: seconds after sending at which the client hangs up, when the answer is not complete by then.
        number: from it the prompt's own tokens come; None: its place among all that are sent in a run, from 1.
    """

    shape: Shape
    shared: tuple[Segment, ...] = ()
    hang_up_tokens: int | None = None
    hang_up_seconds: float | None = None
    number: int | None = None

    @property
    def hangs_up(self) -> bool:
        return self.hang_up_tokens is not None or self.hang_up_seconds is not None
