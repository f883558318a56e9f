"""What SGLang's scheduler will do with a carousel: who joins in which decode step, and how many pages are free (pure).

A carousel never lacks pages, and its prompts fit into one prefill. So the order of steps comes down to when pages come
back and when the next pass of admissions is (`CarouselForecast.advance`), and a pass to the two formulas of
`loadgen/sglang/admission.py`.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ...sglang.admission import charge, is_admitted
from ...sglang.releases import NEWEST
from ...sglang.rules import Rules
from .requests import QueuedRequest, RunningRequest


@dataclass
class AdmissionPass:
    """A pass of admissions.

    Attributes:
        step: the decode step that those who are admitted join in.
        free: pages that are free now.
        left: pages that are left to the pass: free, and not charged to a request so far.
        admitted: requests so far.
        pages: pages that they hold.
    """

    step: int
    free: int
    left: int
    admitted: int = 0
    pages: int = 0


class CarouselForecast:
    """Goes on from the last step that was seen.

    Args:
        step: that decode step.
        free: pages that were free after it, without those of the requests that ended with it.
        opened: requests left the batch with that step, and so opened admission.
        planner: the next request, when none waits any more; None: nobody else is to be admitted in this pass.

    Attributes:
        rows: requests that run, without those that ended.
        ending: how many requests cross and end in each decode step.
        keeping: how many cross and run on.
    """

    def __init__(
        self,
        step: int,
        free: int,
        running: Iterable[RunningRequest],
        queue: Iterable[QueuedRequest],
        planner: Callable[[AdmissionPass], QueuedRequest | None],
        *,
        page_size: int,
        overlap: bool,
        opened: bool,
        rules: Rules = NEWEST,
    ) -> None:
        self.step = step
        self.free = free
        self.rows = 0
        self.ending: Counter[int] = Counter()
        self.keeping: Counter[int] = Counter()
        self._page_size = page_size
        self._overlap = overlap
        self._opened = opened
        self._rules = rules
        self._queue = deque(queue)
        self._planner = planner
        self._crossing: defaultdict[int, list[RunningRequest]] = defaultdict(list)
        self._leaving: defaultdict[int, list[int]] = defaultdict(list)
        self._returning = 0
        for row in running:
            if row.last_step == step:
                self._returning += row.pages + 1
            else:
                self._add_row(row.after_crossing(page_size) if row.crosses == step else row)

    def crossing(self, step: int) -> int:
        """Requests that cross in a decode step, of those that are known."""
        return self.ending[step] + self.keeping[step]

    def coming_back(self, step: int) -> int:
        """Pages of the requests that end with a decode step, of those that are known."""
        crossing = sum(row.pages + 1 for row in self._crossing[step] if row.last_step == step)
        return crossing + sum(self._leaving[step])

    def advance(self) -> None:
        """Go on to the next decode step."""
        opened, self._opened = self._opened, False
        if not self._overlap:
            ended = self._take_back()
            if self._opens(ended) or opened:
                self._admit()
        else:
            if opened and self._admit() and self._opens(self._take_back()):
                # The prefill ran, and with it the last step's requests were seen to end.
                self._admit()
            if self.crossing(self.step + 1) > self.free and self._take_back():
                # The step is put off: those that are about to end sit out, and their pages come back.
                self._admit()
        self.step += 1
        self.free += self._returning - self.crossing(self.step)
        # They sit out, and so leave the batch with this step.
        self._opened |= self._returning > 0
        self._returning = 0
        self._leave()

    def _take_back(self) -> bool:
        """The pages of the requests that ended with the last step come back; whether there are any."""
        pages, self._returning = self._returning, 0
        self.free += pages
        return pages > 0

    def _opens(self, ended: bool) -> bool:
        """Whether requests that were seen to end open admission at once. If not, they leave with the next step."""
        if self._rules.ended_rows_leave_before_admission:
            return ended
        self._opened |= ended
        return False

    def _admit(self) -> bool:
        """A pass of admissions; whether anybody was admitted."""
        admission = AdmissionPass(self.step + 1, self.free, self.free)
        while True:
            queued = self._queue[0] if self._queue else self._planner(admission)
            if queued is None:
                break
            prompt = queued.shape(self._page_size).prompt_tokens
            if not is_admitted(prompt, admission.left * self._page_size, self._page_size, self._rules):
                break
            if self._queue:
                self._queue.popleft()
            self._add_row(queued.admitted_at(admission.step))
            admission.admitted += 1
            admission.pages += queued.pages
            admission.free -= queued.pages
            admission.left -= charge(prompt, self._page_size, self._rules) // self._page_size
        self.free = admission.free
        return admission.admitted > 0

    def _add_row(self, row: RunningRequest) -> None:
        self.rows += 1
        if row.crosses > row.last_step:
            self._leaving[row.last_step].append(row.pages)
        else:
            self._crossing[row.crosses].append(row)
            (self.ending if row.crosses == row.last_step else self.keeping)[row.crosses] += 1

    def _leave(self) -> None:
        for row in self._crossing.pop(self.step, []):
            self.rows -= 1
            if row.last_step == self.step:
                self._returning += row.pages + 1
            else:
                self._add_row(row.after_crossing(self._page_size))
        for pages in self._leaving.pop(self.step, []):
            self.rows -= 1
            self._returning += pages
