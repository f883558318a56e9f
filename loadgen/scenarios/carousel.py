"""The carousel: which request crosses in which decode step, and what to queue next (pure).

A *seat* is a place in the running batch that one request after another takes. Each request lives just long enough to
cross one page boundary, in its last decode step; its successor, the head of the server's waiting queue, takes the pages
that it gives back. The server admits in the order of arrival, so from the batch sizes that the probe saw
it follows exactly which requests run, and in which decode step each of them will cross.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from .base import ObservedStep


@dataclass(frozen=True, slots=True)
class Ticket:
    """A request in the server's waiting queue.

    Attributes:
        pages: pages that it holds after prefill.
        at_step: its own decode step, from 1, in which it crosses and ends.
    """

    pages: int
    at_step: int


@dataclass(frozen=True, slots=True)
class Rider:
    """A request in the running batch.

    Attributes:
        pages: pages that it holds until it crosses.
        last_step: the server's decode step in which it crosses and ends.
    """

    pages: int
    last_step: int


class OutOfStep(Exception):
    """The server did something that the carousel did not foresee, so that what it believes is no longer true.

    Attributes:
        cause: one of few, without figures.
    """

    def __init__(self, cause: str, detail: str) -> None:
        super().__init__(f"{cause}: {detail}")
        self.cause = cause


class Carousel:
    """What runs and what waits, kept in step with the server by the decode steps that the probe saw.

    Args:
        page_size: tokens a page; no request can cross later than in its own step `page_size`.
        most_pages: pages that one request may hold after prefill.
        overlap: whether the server schedules a step before it has the results of the one before (its default).
    """

    def __init__(self, page_size: int, most_pages: int, overlap: bool) -> None:
        self._page_size = page_size
        self._most_pages = most_pages
        self._overlap = overlap
        self._now = 0
        self.riders: list[Rider] = []
        self.queue: deque[Ticket] = deque()

    def board(self, tickets: Iterable[Ticket]) -> None:
        """Tell the carousel of requests that are sent now, in the order in which they are sent."""
        self.queue.extend(tickets)

    def follow(self, step: ObservedStep) -> None:
        """Take in one decode step.

        Raises:
            OutOfStep: the step is not the one that follows from what runs and what waits.
        """
        self._now = step.step
        self.riders = [rider for rider in self.riders if rider.last_step >= step.step]
        joined = step.batch_size - len(self.riders)
        if step.retracted:
            raise OutOfStep("requests were retracted", f"{step.retracted} before step {step.step}")
        if not 0 <= joined <= len(self.queue):
            detail = f"{joined} in step {step.step}, when {len(self.queue)} waited"
            raise OutOfStep("other requests joined than were due", detail)
        for _ in range(joined):
            ticket = self.queue.popleft()
            self.riders.append(Rider(ticket.pages, step.step + ticket.at_step - 1))
        need = sum(rider.last_step == step.step for rider in self.riders)
        if need != step.need:
            detail = f"{step.need} in step {step.step}, foreseen were {need}"
            raise OutOfStep("other pages were needed than foreseen", detail)

    def successors(self, count: int, seats: int, pages: int) -> list[Ticket]:
        """The next requests to queue: each crosses in the first decode step that nobody crosses in yet.

        Args:
            count: how many.
            seats: seats of the carousel; those without a rider are filled first.
            pages: pages that all seats together are to hold. What the seats lack the first successors take.
        """
        crossed = {rider.last_step for rider in self.riders}
        vacant = seats - len(self.riders)
        # (step after which the seat is free, pages of the one who sits there)
        turns = [(self._now - 1, 0)] * vacant + [(rider.last_step, rider.pages) for rider in self.riders]
        heapq.heapify(turns)
        for ticket in self.queue:
            freed, _ = heapq.heappop(turns)
            crossing = self._first_step(freed, crossed) + ticket.at_step - 1
            crossed.add(crossing)
            heapq.heappush(turns, (crossing, ticket.pages))
        tickets = []
        for _ in range(count):
            freed, _ = heapq.heappop(turns)
            first_step = self._first_step(freed, crossed)
            # Not its first step: the prompt of a request that crosses at once fills its last page to the brim, and
            # SGLang does not admit that into the space its predecessor left.
            crossing = first_step + 2
            while crossing in crossed:
                crossing += 1
            crossing = min(crossing, first_step + self._page_size - 1)
            crossed.add(crossing)
            lacking = pages - sum(held for _, held in turns)
            ticket = Ticket(pages=min(max(1, lacking), self._most_pages), at_step=crossing - first_step + 1)
            heapq.heappush(turns, (crossing, ticket.pages))
            tickets.append(ticket)
        return tickets

    def _first_step(self, freed: int, crossed: set[int]) -> int:
        """The first decode step of a request that takes a seat which is freed with step `freed`.

        With overlap scheduling the pages of a request that ended come back while the next step runs. If that
        step needs a page there is none: SGLang skips it, takes the pages back, admits, and only then decodes. If it
        needs none it runs, and the successor joins one step later.
        """
        return freed + 1 if not self._overlap or freed + 1 in crossed else freed + 2
