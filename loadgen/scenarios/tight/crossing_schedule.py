"""The schedule of a carousel: how many requests are to cross in which decode step (pure).

A need can at most double from one step to the next: the rows that cross give back at least two pages each, and more
than that cannot be counted on. So a schedule steps up by doubling. It may step down at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

PAUSE_STEPS = 2
"""With overlap scheduling those that take the places of the last to cross join in the second step of a pause."""


@dataclass(frozen=True, slots=True)
class ScheduledStep:
    """What is to happen in one decode step.

    Attributes:
        need: requests that cross.
        others: rows beside them.
        mixed: those that join in it cross in any order, and not after all that joined before.
        newest: those that cross are the last that joined, so that no row is trailing.
    """

    need: int
    others: int
    mixed: bool = False
    newest: bool = False


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of the schedule with the same need.

    Attributes:
        steps: how many decode steps it lasts.
        pause: it ends with steps in which nobody crosses, and one in which the newest rows do.
    """

    need: int
    others: int
    steps: int
    mixed: bool = False
    pause: bool = False


class CrossingSchedule:
    """Phases that follow each other over and over.

    Args:
        start: the first decode step of the first phase. One request crosses in each step before it.
    """

    def __init__(self, phases: Sequence[Phase], start: int) -> None:
        self._start = start
        self._before = ScheduledStep(1, phases[0].others)
        self._lead_in = _rise(1, phases[0])
        self._round: list[ScheduledStep] = []
        last = phases[-1].need
        for phase in phases:
            self._round += [*_rise(last, phase), *_steps_of(phase)]
            last = phase.need
        self._first_round = self._lead_in + self._round[len(_rise(last, phases[0])) :]

    def at(self, step: int) -> ScheduledStep:
        """What is to happen in a decode step of the server."""
        place = step - self._start
        if place < 0:
            return self._before
        if place < len(self._first_round):
            return self._first_round[place]
        return self._round[(place - len(self._first_round)) % len(self._round)]

    def next_need(self, step: int) -> int:
        """Requests that cross in the first step, from `step` on, in which any do."""
        return next(need for later in itertools.count(step) if (need := self.at(later).need))

    def joining(self, step: int) -> int:
        """Requests that join in a step, or with overlap in the next one of a pause; nobody does after a pause."""
        return self.next_need(step) if self.at(step - 1).need else 0


def _rise(need: int, phase: Phase) -> list[ScheduledStep]:
    """The steps from one need to a phase that needs more than twice as much."""
    scheduled_steps = []
    while 2 * need < phase.need:
        need *= 2
        scheduled_steps.append(ScheduledStep(need, phase.others))
    return scheduled_steps


def _steps_of(phase: Phase) -> list[ScheduledStep]:
    scheduled_steps = [ScheduledStep(phase.need, phase.others, phase.mixed)] * phase.steps
    if phase.pause:
        pause = [ScheduledStep(0, phase.others, phase.mixed)] * PAUSE_STEPS
        scheduled_steps[-PAUSE_STEPS - 1 :] = [
            *pause,
            ScheduledStep(phase.need, phase.others, phase.mixed, newest=True),
        ]
    return scheduled_steps
