"""A run's flight recording as the controller reads it: steps for the driver, measures for people."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path

from loadgen.clock import REAL, Clock
from loadgen.coverage import Coverage
from loadgen.sglang.server import ServerConfiguration
from loadgen.statistics.histogram import Histogram
from service.measures import PAGES, SURPLUS_PAGES
from service.plugin.flight import DecodeStep, Totals
from service.plugin.flight_reader import FlightReader
from service.plugin.measures import RECORDED


class Recording:
    """Reads a recording from where it stands when this is made; what was recorded before does not count.

    It is the driver's step feed. All steps pass through it, so it also keeps what only the single steps tell.

    Args:
        server: what decides which cells of the edge can exist.

    Attributes:
        surplus: crossing steps by free pages minus need.
        free_pages: free pages before each crossing step's allocation.
        surplus_pages: free pages minus need of each crossing step.
        needed_pages: pages that each crossing step needed.
        first_critical_ns: when the first critical step was entered, by the recorder's clock; None before it.
        last_step: the last step that was taken in.
        steps_before: decode steps that were recorded before this was made.
        coverage: the cells of the edge that were hit; None when the server is not known.
    """

    def __init__(self, path: Path, server: ServerConfiguration | None = None) -> None:
        self._reader = FlightReader(path)
        self._base = self._reader.totals()
        self.steps_before = self._taken = self._base.decode_steps
        self.surplus: Counter[int] = Counter()
        self.free_pages = Histogram(PAGES)
        self.surplus_pages = Histogram(SURPLUS_PAGES)
        self.needed_pages = Histogram(PAGES)
        self.first_critical_ns: int | None = None
        self.last_step: DecodeStep | None = None
        self.server = server
        self.coverage = None if server is None else Coverage(server)

    def take(self) -> list[DecodeStep]:
        """The decode steps since the last call, oldest first."""
        steps = list(self._reader.steps(after=self._taken))
        for step in steps:
            if step.crossing:
                self.surplus[step.free - step.need] += 1
                self.free_pages.observe(step.free)
                self.surplus_pages.observe(step.free - step.need)
                self.needed_pages.observe(step.need)
            if step.critical and self.first_critical_ns is None:
                self.first_critical_ns = step.at_ns
            if self.coverage is not None:
                self.coverage.observe(step)
        if steps:
            self.last_step = steps[-1]
            self._taken = steps[-1].step
        return steps

    def totals(self) -> Totals:
        """What was recorded since this was made."""
        now = self._reader.totals()
        growth = {each.name: getattr(now, each.name) - getattr(self._base, each.name) for each in RECORDED}
        return Totals(**growth, last_step_ns=now.last_step_ns)

    @property
    def raised(self) -> bool:
        """Whether an exception came out of the allocator."""
        return self._reader.totals().exceptions > self._base.exceptions

    @property
    def error(self) -> str:
        return self._reader.error()

    def last(self, count: int) -> list[DecodeStep]:
        """The last steps, oldest first; read anew, so that what became of each is known."""
        return self._reader.last(count)


def wall_time(at_ns: int, clock: Clock = REAL) -> datetime:
    """UTC time of a moment of the recorder's clock, nanoseconds."""
    return datetime.now(timezone.utc) - timedelta(seconds=clock.machine_seconds((clock.now_ns() - at_ns) / 1e9))
