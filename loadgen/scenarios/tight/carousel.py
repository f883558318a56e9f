"""The carousel: which request crosses in which decode step, and what to queue next (pure).

Each request crosses one page boundary, in its last decode step. Then it ends, and the first requests of the server's
waiting queue take the pages that it gives back. Three rows of 2 pages each in a pool of 7, each row with its successor:

    step   crosses   free   need   comes back   the successor holds   free in the next step
    4      row 1     1      1      3            2                     1
    5      row 2     1      1      3            2                     1
    6      row 3     1      1      3            2                     1

So every step is tight, as long as requests wait in the queue.

The server admits in the order of arrival. So the batch sizes that the probe saw say which requests run, and in which
step each of them will cross.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable

from ...errors import LoadError
from ...sglang.admission import most_admitted
from ...sglang.releases import NEWEST
from ...sglang.rules import Rules
from ...sglang.steps import ObservedStep
from .carousel_forecast import AdmissionPass, CarouselForecast
from .crossing_schedule import PAUSE_STEPS, CrossingSchedule
from .requests import QueuedRequest, RunningRequest

_FARTHEST_STEPS = 1000
_USUAL_SHORTAGE = 8
"""One row in so many may be missing. When more are, a step is not made tight, so that more rows can join in it."""


class OutOfStep(LoadError):
    """The server did something that the carousel did not foresee. What runs and what waits is no longer known.

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
        prefill_pages: pages that one prefill takes.
        overlap: whether the server schedules a step before it has the results of the one before (its default).
        seed: of the order in which requests cross where any will do.
        rules: those of the server's release.

    Attributes:
        free: pages that were free after the last step that was seen, without those of the requests that ended with it.
    """

    def __init__(self, page_size: int, prefill_pages: int, overlap: bool, seed: int = 0, rules: Rules = NEWEST) -> None:
        self._page_size = page_size
        self._prefill_pages = prefill_pages
        self._overlap = overlap
        self._rules = rules
        self._now = 0
        self._opened = False
        self._random = random.Random(seed)
        self.free = 0
        self.running: list[RunningRequest] = []
        self.queue: deque[QueuedRequest] = deque()

    def queue_up(self, to_queue: Iterable[QueuedRequest]) -> None:
        """Tell the carousel of requests that are sent now, in the order in which they are sent."""
        self.queue.extend(to_queue)

    def follow(self, step: ObservedStep) -> None:
        """Take in one decode step.

        Raises:
            OutOfStep: the step is not the one that follows from what runs and what waits.
        """
        self._now = step.step
        returned = sum(_pages_at_end(row) for row in self.running if row.last_step < step.step)
        self.running = [
            row.after_crossing(self._page_size) if row.crosses < step.step else row
            for row in self.running
            if row.last_step >= step.step
        ]
        joined = step.batch_size - len(self.running)
        if step.retractions:
            raise OutOfStep("requests were retracted", f"{step.retractions} before step {step.step}")
        if not 0 <= joined <= len(self.queue):
            detail = f"{joined} in step {step.step}, when {len(self.queue)} waited"
            raise OutOfStep("other requests joined than were due", detail)
        # A step that needs no page that is missing runs before the pages of those that have just ended are back.
        late = self._overlap and not step.prefill_batches and returned > 0 and step.free < self.free + returned
        self._opened = late or (returned > 0 and self._leave_with(step))
        self.free = step.free - step.need + (returned if late else 0)
        for _ in range(joined):
            self.running.append(self.queue.popleft().admitted_at(step.step))
        need = sum(row.crosses == step.step for row in self.running)
        if need != step.need:
            detail = f"{step.need} in step {step.step}, foreseen were {need}"
            raise OutOfStep("other pages were needed than foreseen", detail)

    def _leave_with(self, step: ObservedStep) -> bool:
        """Whether requests that ended before a step, and were seen to, left the batch only with it."""
        if self._rules.ended_rows_leave_before_admission:
            return False
        # A prefill of an earlier pass ran; if not, the step was put off for their pages, and they left before it.
        return not self._overlap or (self._opened and step.prefill_batches > 0)

    def successors(self, count: int, schedule: CrossingSchedule) -> list[QueuedRequest]:
        """The next requests to queue, so that in each decode step as many cross as the schedule says.

        In a pass of admissions they take what is free but for the pages that the next step needs. The more of these
        there are, the more requests one pass admits (`most_admitted`).
        """
        requests: list[QueuedRequest] = []
        barred = 0

        def plan(admission: AdmissionPass) -> QueuedRequest | None:
            nonlocal barred
            if len(requests) == count:
                return None
            queued = self._next_request(admission, forecast, schedule, barred)
            if queued is None:
                # Nothing is to join in this pass. But a request that is planned for a later pass waits in the queue
                # by then, and the server would admit it now if it fitted. So it has to be too long for this one.
                barred = max(barred, admission.left)
            else:
                requests.append(queued)
                barred = 0
            return queued

        forecast = CarouselForecast(
            self._now,
            self.free,
            self.running,
            self.queue,
            plan,
            page_size=self._page_size,
            overlap=self._overlap,
            opened=self._opened,
            rules=self._rules,
        )
        last = self._now + _FARTHEST_STEPS + len(self.queue) + count
        while len(requests) < count and forecast.step < last:
            forecast.advance()
        return requests

    def _next_request(
        self, admission: AdmissionPass, forecast: CarouselForecast, schedule: CrossingSchedule, barred: int
    ) -> QueuedRequest | None:
        """The request to admit next in a pass of admissions; None when no more are to join in it.

        Args:
            barred: fewest pages that it holds. With fewer it would be admitted earlier, in a pass that is to end.
        """
        leave, missing = self._targets(admission, forecast, schedule)
        pages = min(admission.free - leave, self._prefill_pages - 1 - admission.pages)
        most = most_admitted(leave, self._rules) - admission.admitted
        if pages < 1 or most < 1:
            return None
        pages_each = -(-pages // max(1, min(missing - admission.admitted, most, pages)))
        pages_each = max(pages_each, min(barred, pages))
        if pages_each < barred:
            return None
        crossing_step = self._vacant_step(admission.step, forecast, schedule)
        return QueuedRequest(pages_each, crossing_step - admission.step + 1)

    def _targets(
        self, admission: AdmissionPass, forecast: CarouselForecast, schedule: CrossingSchedule
    ) -> tuple[int, int]:
        """Pages to leave free after a pass of admissions, and requests to admit in it."""
        step = admission.step
        leave = forecast.keeping[step] + (forecast.ending[step] or schedule.next_need(step))
        # The pages that come back with this step have to be enough for the next one. Where they are not, more is left
        # free now.
        lacking = max(0, schedule.at(step + 1).need - forecast.ending[step + 1])
        next_need = forecast.crossing(step + 1) + min(lacking, leave)
        leave = max(leave, forecast.crossing(step) + next_need - forecast.coming_back(step))
        missing = schedule.at(step).others + forecast.ending[step] - (forecast.rows - admission.admitted)
        if missing > leave + schedule.at(step).others // _USUAL_SHORTAGE:
            # Too few rows run. A pass admits more of them when it leaves more pages free. The next step then has pages
            # to spare, and more rows run after it.
            leave = max(leave, min(missing, (admission.free + admission.pages) // 2))
        return leave, missing

    def _vacant_step(self, first_step: int, forecast: CarouselForecast, schedule: CrossingSchedule) -> int:
        """The decode step in which a request is to cross that joins in `first_step`.

        It is the first step in which fewer rows cross than the schedule says; in a mixed phase, any of them. When there
        is none, it is the last in which the request can cross: its own step `page_size`.

        It is never the request's own first step. A request that crosses at once has a prompt that fills its last page,
        and SGLang does not admit that into the pages that another one gave back.
        """
        last = first_step + self._page_size - 1
        vacant: list[int] = []
        lacking = 0
        joining_later = 0
        for step in range(first_step + 1, last):
            scheduled = schedule.at(step)
            lack = max(0, scheduled.need - forecast.ending[step])
            lacking += lack
            if lack and (not scheduled.newest or first_step >= step - PAUSE_STEPS):
                vacant.append(step)
            # A later step may be taken only if the requests that join later are enough for all steps up to it.
            if vacant and (lacking > joining_later or not schedule.at(first_step).mixed):
                break
            joining_later += schedule.joining(step)
        return self._random.choice(vacant) if vacant else last


def _pages_at_end(row: RunningRequest) -> int:
    return row.pages + (row.crosses <= row.last_step)
