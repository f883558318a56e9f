"""Trials of loads on a real engine: one engine serves trials until it dies, then the next one is booted."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import anyio.to_thread

from loadgen.driver import Driver
from loadgen.scenarios.waves.scenario import Waves, WavesOptions
from loadgen.shrink import Case
from service.engine.crash.crash import Crash
from service.engine.process.command import LOG_FILE
from service.execution.evidence import STEPS_KEPT, write_steps
from service.execution.launching import plan_for
from service.execution.preflight import Prepared
from service.execution.session import EngineSession, launched
from service.spec.spec import RunSpec


@dataclass(frozen=True)
class Attempt:
    """What became of one load.

    Attributes:
        crash: None when the engine survived.
        decode_steps: made under this load.
        seconds: under load, and until it was clear that the engine had survived.
        boot_seconds: how long the engine took to be ready; None when it served already.
    """

    crash: Crash | None
    decode_steps: int
    seconds: float
    boot_seconds: float | None


@dataclass(frozen=True)
class _BootedEngine:
    session: EngineSession
    folder: Path
    stop: AsyncExitStack


class EngineTrials:
    """As an async context manager it leaves no engine behind.

    Args:
        spec: whose engine to launch, with which seed.
        folder: each engine's files are in a folder of its own below.
        tell: called with a line for people when an engine begins to boot, which takes its time.
    """

    def __init__(self, spec: RunSpec, prepared: Prepared, folder: Path, tell: Callable[[str], None]) -> None:
        self._spec = spec
        self._prepared = prepared
        self._folder = folder
        self._tell = tell
        self._boots = 0
        self._engine: _BootedEngine | None = None

    async def __aenter__(self) -> EngineTrials:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._engine is not None:
            await self._engine.stop.aclose()

    async def attempt(self, case: Case) -> Attempt:
        """Send a load to an idle engine, and see what becomes of it.

        Raises:
            EngineError: an engine could not be started.
            OSError: its folder cannot be written.
        """
        boot_seconds = None
        if self._engine is None:
            began = time.monotonic()
            self._engine = await self._boot()
            boot_seconds = time.monotonic() - began
        elif self._prepared.server.prefix_cache:
            # A trial is to find nothing of those before it.
            await self._engine.session.empty_prefix_cache()
        began = time.monotonic()
        crash, steps = await self._load(self._engine, case)
        seconds = time.monotonic() - began
        if crash is not None:
            engine, self._engine = self._engine, None
            await engine.stop.aclose()
        return Attempt(crash, steps, seconds, boot_seconds)

    async def _boot(self) -> _BootedEngine:
        self._boots += 1
        folder = self._folder / f"engine-{self._boots}"
        folder.mkdir(parents=True, exist_ok=True)
        self._tell(f"booting engine {self._boots}; its log is {folder / LOG_FILE}")
        plan = await anyio.to_thread.run_sync(plan_for, self._spec, self._prepared, folder)
        async with AsyncExitStack() as stack:
            session = await stack.enter_async_context(launched(self._spec, self._prepared, plan))
            assert session is not None, "nothing ends the wait early"
            return _BootedEngine(session, folder, stack.pop_all())
        raise AssertionError("the block returns or raises")

    async def _load(self, engine: _BootedEngine, case: Case) -> tuple[Crash | None, int]:
        session = engine.session
        recording = session.begin()
        scenario = Waves(self._prepared.server, WavesOptions(waves=case.written()), self._spec.load.seed or 0)
        driver = Driver(scenario, session.client, recording, session.prompts, clock=session.clock)
        alarm = await session.drive(driver) or session.look() or await session.survival()
        if alarm is None:
            return None, recording.totals().decode_steps
        crash = await session.crash_of(alarm)
        write_steps(engine.folder, recording.last(STEPS_KEPT))
        return crash, recording.totals().decode_steps
