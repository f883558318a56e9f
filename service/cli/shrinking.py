"""`lastpage shrink`, from a file to an exit code."""

from __future__ import annotations

import time
from pathlib import Path
from textwrap import shorten

import anyio
import anyio.to_thread
from rich.console import Console
from rich.text import Text

from loadgen.scenarios.waves.scenario import Waves, WaveSpec
from loadgen.sglang.releases import rules_for
from loadgen.shrink.on_model import ServerModel, model_of
from service.cli.soak import EXIT_INTERRUPTED, EXIT_NOT_STARTED, EXIT_SPEC, print_faults, signals_heard
from service.engine.crash.signatures import CrashKind
from service.errors import EngineError
from service.execution.preflight import Prepared, prepare
from service.execution.repro import CRASH_LABEL, FINDING_LABEL
from service.home import Home
from service.runs.active_run import utc_now
from service.runs.device_lock import DeviceLock
from service.runs.folder import files_of_a_run, new_run_id, write_spec
from service.shrink.shrink_session import SHRUNK_FILE, TRIALS_FILE, End, ShrinkSession
from service.shrink.trials import EngineTrials
from service.spec.duration import format_duration
from service.spec.faults import Fault, InvalidSpec
from service.spec.parsing import parse_spec
from service.spec.spec import RunSpec
from service.spec.yaml_text import load_yaml

EXIT_FLAKY = 1
EXIT_NO_CRASH = 3
_EXIT = {End.CONFIRMED: 0, End.FLAKY: EXIT_FLAKY, End.NO_CRASH: EXIT_NO_CRASH}
_WAVES_SHOWN = 5
_WIDTH = 100


def read_repro(path: Path) -> RunSpec:
    """A repro from its file.

    Raises:
        InvalidSpec: it is no run spec, not one of the scenario `waves`, made of something that is no crash, or names
            a kind of crash that there is not; with every fault.
    """
    spec = parse_spec(load_yaml(path))
    faults = []
    if spec.load.scenario != Waves.name:
        message = f"nothing to shrink in it; allowed: {Waves.name}, as in the repro.yaml of a run that crashed"
        faults.append(Fault(field="load.scenario", value=spec.load.scenario, message=message))
    if FINDING_LABEL in spec.labels and CRASH_LABEL not in spec.labels:
        message = "only crashes are shrunk; allowed: the repro of a crash, or one without this label"
        faults.append(Fault(field=f"labels.{FINDING_LABEL}", value=spec.labels[FINDING_LABEL], message=message))
    kinds = [kind.value for kind in CrashKind]
    if (kind := spec.labels.get(CRASH_LABEL)) is not None and kind not in kinds:
        message = f"no such kind of crash; allowed: {', '.join(kinds)}, or none, and the first crash tells"
        faults.append(Fault(field=f"labels.{CRASH_LABEL}", value=kind, message=message))
    if faults:
        raise InvalidSpec(faults)
    return spec


async def shrink(home: Home, repro: RunSpec, out: Path | None, budget: float, console: Console, errors: Console) -> int:
    """Shrink a repro, tell of each trial, and return the exit code. SIGINT, SIGTERM and SIGHUP end it in order."""
    folder = out or home.runs / f"{new_run_id(utc_now())}-shrink"
    shrunk = [name for name in (SHRUNK_FILE, TRIALS_FILE) if (folder / name).exists()]
    if found := shrunk or files_of_a_run(folder):
        message = f"{', '.join(found)} of an earlier {'shrinking' if shrunk else 'run'} there"
        message += "; choose another folder, or remove it"
        print_faults(errors, [Fault(field="out", value=str(folder), message=message)])
        return EXIT_SPEC
    prepared, faults = await anyio.to_thread.run_sync(prepare, repro, home)
    if prepared is None:
        print_faults(errors, faults)
        return EXIT_SPEC
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_spec(folder, repro)
    except OSError as error:
        print_faults(errors, [Fault(field="out", value=str(folder), message=f"cannot be used: {error}")])
        return EXIT_SPEC
    return await _Shrinking(repro, prepared, folder, budget, console).carry_out(home.device_lock)


class _Shrinking:
    """One use of the command, once all is in order."""

    def __init__(self, repro: RunSpec, prepared: Prepared, folder: Path, budget: float, console: Console) -> None:
        self._repro = repro
        self._prepared = prepared
        self._folder = folder
        self._budget = budget
        self._console = console
        self._session: ShrinkSession | None = None
        self._began = time.monotonic()

    async def carry_out(self, device: Path) -> int:
        code = EXIT_INTERRUPTED
        async with anyio.create_task_group() as group:
            group.start_soon(self._end_on_signal, group.cancel_scope)
            code = await self._with_device(DeviceLock(device))
            group.cancel_scope.cancel()
        self._tell_result(code)
        return code

    async def _with_device(self, lock: DeviceLock) -> int:
        await lock.take(self._folder.name, self._waiting, anyio.Event())
        try:
            self._began = time.monotonic()
            async with EngineTrials(self._repro, self._prepared, self._folder, self._tell) as trials:
                model = self._model()
                self._session = ShrinkSession(
                    self._repro, trials, self._folder, self._tell, budget_seconds=self._budget, model=model
                )
                self._tell(f"to shrink: {self._session.original}; crash {self._session.kind or 'of any kind'}")
                return _EXIT[await self._session.run()]
        except (EngineError, OSError) as error:
            self._tell(str(error))
            return EXIT_NOT_STARTED
        finally:
            lock.release()

    def _model(self) -> ServerModel | None:
        """The model of the engine's scheduler; None when its release is not known."""
        version = self._prepared.check.version
        if version is None:
            return None
        release = rules_for(version)
        if release.assumed:
            self._tell(f"SGLang {version} is not known: the model assumes the rules of {release.release}")
        return model_of(self._prepared.server)

    def _tell(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)

    async def _waiting(self, holder: str) -> None:
        self._tell(f"waiting: {holder}")

    def _tell_result(self, code: int) -> None:
        session = self._session
        if session is None:
            return
        counts = (_counted(session.trials, "trial"), _counted(session.boots, "boot"))
        spent = ", ".join((*counts, format_duration(time.monotonic() - self._began)))
        if session.best is None:
            said = "it does not crash" if code == EXIT_NO_CRASH else "no load has crashed yet"
            self._tell(f"result   {said}{f' as {session.kind}' if session.kind else ''}; {spent}")
        else:
            doubt = "; IT DID NOT CRASH ONCE MORE: what crashes it is partly chance" if code == EXIT_FLAKY else ""
            self._tell(f"result   {session.best}, from {session.original}; {spent}{doubt}")
            waves = session.best.written()
            for wave in waves[:_WAVES_SHOWN]:
                self._tell(f"         {_wave_line(wave)}")
            if len(waves) > _WAVES_SHOWN:
                self._tell(f"         ... and {_counted(len(waves) - _WAVES_SHOWN, 'wave')} more")
            self._tell(f"again    lastpage soak -f {self._folder / SHRUNK_FILE}")
        self._tell(f"folder   {self._folder}")

    async def _end_on_signal(self, scope: anyio.CancelScope) -> None:
        with anyio.open_signal_receiver(*signals_heard()) as signals:
            async for _ in signals:
                self._tell("Interrupted: stopping the engine. What has crashed so far stays.")
                scope.cancel()
                return


def _wave_line(wave: WaveSpec) -> str:
    """A wave for people: when and how it is sent, in the words of a spec, and what."""
    conditions = wave.model_dump(exclude={"requests"}, exclude_defaults=True)
    words = ", ".join(name if value is True else f"{name} {value:g}" for name, value in conditions.items())
    requests = shorten(wave.requests, _WIDTH, placeholder=" ...")
    return f"{words}: {requests}" if words else requests


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"
