"""Requests of a carousel, as they wait and as they run (pure)."""

from __future__ import annotations

from dataclasses import dataclass

from ...sglang.shape import Shape


@dataclass(frozen=True, slots=True)
class QueuedRequest:
    """A request in the server's waiting queue.

    Attributes:
        pages: pages that it holds after prefill.
        at_step: its own decode step, from 1, in which it crosses first.
        steps: decode steps that it takes part in; None: it ends as it crosses.
    """

    pages: int
    at_step: int
    steps: int | None = None

    def shape(self, page_size: int) -> Shape:
        steps = self.at_step if self.steps is None else self.steps
        return Shape(prompt_tokens=self.pages * page_size + 1 - self.at_step, max_new_tokens=steps + 1)

    def admitted_at(self, first_step: int) -> RunningRequest:
        """The same request once it runs, from its first decode step on."""
        crosses = first_step + self.at_step - 1
        return RunningRequest(self.pages, crosses, crosses if self.steps is None else first_step + self.steps - 1)


@dataclass(frozen=True, slots=True)
class RunningRequest:
    """A request in the running batch.

    Attributes:
        pages: pages that it holds until it crosses.
        crosses: the server's decode step in which it crosses next.
        last_step: the one in which it ends; a request that ends before it crosses again does not cross.
    """

    pages: int
    crosses: int
    last_step: int

    def after_crossing(self, page_size: int) -> RunningRequest:
        return RunningRequest(self.pages + 1, self.crosses + page_size, self.last_step)
