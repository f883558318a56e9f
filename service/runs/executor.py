"""What the run manager asks of whatever carries runs out. `service.execution.supervisor` has the real one."""

from __future__ import annotations

from typing import Protocol

import anyio

from service.engine.crash.crash import Crash
from service.runs.model import EngineInfo, Finding, Progress, Run, RunResult, RunStatus
from service.spec.spec import RunSpec


class RunObserver(Protocol):
    """Whom an executor tells what happens, as it happens."""

    async def status(self, status: RunStatus, detail: str | None = None) -> None:
        """The run waits (created), is launching, running or draining. Its end is told by the result alone."""

    async def engine(self, engine: EngineInfo) -> None:
        """Which engine it is; told once that is known, again if it becomes better known."""

    async def progress(self, progress: Progress) -> None:
        """How the run stands; about twice a second."""

    async def finding(self, finding: Finding) -> None:
        """Something was found wrong, the first of its kind and cause; `progress` tells how many it becomes."""

    async def crash(self, crash: Crash) -> None:
        """The engine crashed; its evidence is in the run's folder."""


class PreparedRun(Protocol):
    """A spec that can work, with all that it refers to looked up."""

    async def execute(self, run: Run, observer: RunObserver, cancelled: anyio.Event) -> RunResult:
        """Launch the engine, load it, stop it, and tell what was measured.

        Nothing of the engine is left when this returns, whichever way it does. An engine that cannot be started, or
        that crashes, is a result, not an exception.

        Args:
            run: of that spec, which by now has a seed. `run.folder` exists; every file of the run goes there.
            cancelled: set when the run shall stop early; the result's status is then `cancelled`.
        """
        ...


class Executor(Protocol):
    """Carries out one run at a time."""

    async def preflight(self, spec: RunSpec) -> PreparedRun:
        """Look up all that a spec refers to, once, without launching anything.

        Raises:
            InvalidSpec: it cannot work.
        """
        ...
