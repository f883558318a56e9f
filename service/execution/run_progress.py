"""What a run has measured so far, told twice a second while it runs, and once more with its result."""

from __future__ import annotations

from typing import Any

from loadgen.driver import Driver, Tally
from loadgen.scenarios import Scenario
from service.execution.inspection import Inspection
from service.execution.measuring import histograms_of, measures_of
from service.execution.session import EngineSession
from service.runs.model import Finding, Measures, Progress, RunStatus
from service.spec.spec import RunSpec


class RunProgress:
    """The measures of one run. They stand still from the end of the load on.

    Args:
        session: the engine, once it serves.
        scenario: what loads it.
        inspection: what looks at its answers.
    """

    def __init__(self, spec: RunSpec, session: EngineSession, scenario: Scenario[Any], inspection: Inspection) -> None:
        self._spec = spec
        self._session = session
        self._scenario = scenario
        self._inspection = inspection
        self._driver: Driver | None = None
        self._began: float | None = None
        self._ended: float | None = None
        self._measured: Measures | None = None

    def begin(self, driver: Driver) -> None:
        """The load begins."""
        self._driver = driver
        self._began = self._session.clock.now()

    def end(self) -> None:
        """The load has ended; what the engine does from here on, with what was left of it, is not the load's."""
        if self._measured is None:
            self._ended = self._session.clock.now()
            self._session.recording.take()
            self._measured = self._count(cells=True)

    @property
    def covered_enough(self) -> bool:
        """Whether as much of the edge is covered as the spec asks for."""
        wanted, coverage = self._spec.load.until_coverage, self._session.recording.coverage
        return wanted is not None and coverage is not None and coverage.share >= wanted

    @property
    def measures(self) -> Measures:
        return self._inspection.added_to(self._measured or self._count())

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self._inspection.findings

    def snapshot(self, status: RunStatus = RunStatus.RUNNING) -> Progress:
        """How the run stands."""
        recording, driver = self._session.recording, self._driver
        last = recording.last_step
        return Progress(
            status=status,
            elapsed_seconds=self._seconds_under_load(),
            total_seconds=self._spec.load.duration,
            pool_pages=self._spec.engine.pool_pages,
            free_pages=last.free if last is not None else None,
            measures=self.measures,
            findings=self.findings,
            histograms=histograms_of(recording, driver.tally) if driver else {},
        )

    def _count(self, *, cells: bool = False) -> Measures:
        return measures_of(
            self._session.recording,
            self._driver.tally if self._driver is not None else Tally(),
            self._session.ready.ready_ns,
            self._seconds_under_load(),
            self._scenario.restarts,
            cells=cells,
        )

    def _seconds_under_load(self) -> float:
        if self._began is None:
            return 0.0
        return (self._ended or self._session.clock.now()) - self._began
