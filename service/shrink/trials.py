"""Trials of loads on a real engine: one engine serves trials until it dies, then the next one is booted."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import anyio
import anyio.to_thread
import httpx

from loadgen.driver import Driver
from loadgen.requests.outcome import RequestOutcome
from loadgen.requests.prompts import PromptMaker
from loadgen.scenarios.waves.scenario import Waves, WavesOptions
from loadgen.shrink import Case
from service.concurrency import first_of
from service.engine.process.command import LOG_FILE, LaunchPlan
from service.engine.process.process import EngineProcess, EngineSurvived
from service.engine.process.readiness import Ready, wait_ready
from service.execution.aftermath import let_it_speak, survival
from service.execution.evidence import STEPS_KEPT, describe_crash, write_steps
from service.execution.kernel_log import oom_kills
from service.execution.launching import client_of, plan_for
from service.execution.preflight import Prepared
from service.execution.recording import Recording
from service.execution.watch import Alarm, Watch
from service.runs.model import Crash
from service.spec.spec import RunSpec

_FLUSH_SECONDS = 10.0


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
    process: EngineProcess
    ready: Ready
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
            await _flush(self._engine.process.plan)
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
            process = await stack.enter_async_context(await EngineProcess.start(plan))
            ready = await wait_ready(plan, process)
            return _BootedEngine(process, ready, stack.pop_all())
        raise AssertionError("the block returns or raises")

    async def _load(self, engine: _BootedEngine, case: Case) -> tuple[Crash | None, int]:
        process, plan = engine.process, engine.process.plan
        facts, seed, hang_seconds = self._prepared.facts, self._spec.load.seed or 0, self._spec.engine.hang_seconds
        recording = Recording(plan.flight)
        client = client_of(plan, self._prepared)
        scenario = Waves(self._prepared.server, WavesOptions(waves=case.written()), seed)
        driver = Driver(scenario, client, recording, PromptMaker(seed, range(facts.vocabulary)), clock=plan.clock)
        watch = Watch(process, recording, lambda: driver.open_requests, hang_seconds, plan.clock)
        kills_before = oom_kills()

        async def load() -> None:
            await driver.run(self._spec.load.duration)

        async def alarm() -> Alarm | None:
            found = await watch.alarm()
            driver.unanswered = RequestOutcome.LOST
            return found

        found = await first_of(load, alarm) or watch.look() or await survival(client, watch, hang_seconds, plan.clock)
        if found is None:
            return None, recording.totals().decode_steps
        await let_it_speak(process, found)
        with contextlib.suppress(EngineSurvived):  # said again when the process is left
            await process.stop(0)
        crash = describe_crash(found, process, recording, engine.ready.ready_ns, oom_kills() - kills_before)
        write_steps(plan.folder, recording.last(STEPS_KEPT))
        return crash, recording.totals().decode_steps


async def _flush(plan: LaunchPlan) -> None:
    """Empty the prefix cache, so that a trial finds nothing of those before it. SGLang does it only when it is idle."""
    async with httpx.AsyncClient(base_url=plan.url, trust_env=False, timeout=_FLUSH_SECONDS) as client:
        with anyio.move_on_after(_FLUSH_SECONDS), contextlib.suppress(httpx.HTTPError):
            while (await client.post("/flush_cache")).status_code != httpx.codes.OK:  # noqa: ASYNC110
                await anyio.sleep(0.1)
