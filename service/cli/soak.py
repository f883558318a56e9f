"""`lastpage soak`: one run, in process, through the very manager that serves the HTTP API."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
from rich.console import Console
from rich.text import Text

from service.cli.console import watch
from service.controller import Controller
from service.report.hints import hints_before
from service.report.table import print_result
from service.runs.folder import not_empty
from service.runs.manager import GRACE_SECONDS, RunManager
from service.runs.model import Run, RunStatus, Verdict
from service.spec.faults import Fault, InvalidSpec
from service.spec.spec import RunSpec
from service.spec.yaml_text import read_yaml

EXIT_SPEC = 2
EXIT_NOT_STARTED = 4
EXIT_INTERRUPTED = 130
_EXIT_VERDICT = {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.INCONCLUSIVE: 3}


def exit_code(run: Run) -> int:
    """What the command says of a run that has ended."""
    if run.status is RunStatus.FAILED_TO_START:
        return EXIT_NOT_STARTED
    if run.status in (RunStatus.INTERRUPTED, RunStatus.CANCELLED):
        return EXIT_INTERRUPTED
    return _EXIT_VERDICT[run.verdict or Verdict.INCONCLUSIVE]


def apply_flags(data: Any, flags: Mapping[tuple[str, ...], Any]) -> Any:
    """A spec file's contents with the flags that were given put over it; what is no mapping is left to be refused.

    Args:
        flags: values by path, as in `("engine", "page_size")`; None is a flag that was not given.
    """
    merged = {} if data is None else data
    for path, value in flags.items():
        if value is not None:
            merged = _put(merged, path, value)
    return merged


def _put(data: Any, path: Sequence[str], value: Any) -> Any:
    if not isinstance(data, Mapping):
        return data
    name, *rest = path
    inner = data.get(name)
    return {**data, name: _put({} if inner is None else inner, rest, value) if rest else value}


def extend(data: Any, path: Sequence[str], values: Sequence[Any]) -> Any:
    """A spec file's contents with values put at the end of one of its lists."""
    present = data
    for name in path:
        present = present.get(name) if isinstance(present, Mapping) else None
    if not values or not isinstance(present or [], list):
        return data
    return _put(data, path, [*(present or []), *values])


def parse_option(text: str) -> tuple[str, Any]:
    """A scenario's option as KEY=VALUE, with the value read as YAML.

    Raises:
        InvalidSpec: it is not of that form.
    """
    key, equals, value = text.partition("=")
    try:
        if key and equals:
            return key, read_yaml(value)
    except ValueError:
        pass
    raise InvalidSpec([Fault(field="load.options", value=text, message="write KEY=VALUE, as in queue=64")])


async def soak(controller: Controller, spec: RunSpec, out: Path | None, console: Console, errors: Console) -> int:
    """Carry one run out, show it, and return the exit code. SIGINT, SIGTERM and SIGHUP interrupt it in order."""
    if out is not None and (message := not_empty(out)):
        print_faults(errors, [Fault(field="out", value=str(out), message=message)])
        return EXIT_SPEC
    for hint in hints_before(spec):
        console.print(Text(f"hint: {hint}", style="yellow"), soft_wrap=True)
    async with controller.manager.started() as manager:
        try:
            run = await manager.submit(spec, out)
        except InvalidSpec as error:
            print_faults(errors, error.faults)
            return EXIT_SPEC
        except OSError as error:
            print_faults(errors, [Fault(field="out", value=str(out), message=f"cannot be used: {error}")])
            return EXIT_SPEC
        async with anyio.create_task_group() as group:
            group.start_soon(_stop_on_signal, manager, console)
            run = await watch(console, manager.events(run.id))
            group.cancel_scope.cancel()
    print_result(console, run)
    return exit_code(run)


def print_faults(console: Console, faults: Sequence[Fault]) -> None:
    """Tell what is wrong with a spec, a line a fault."""
    console.print(Text("The spec cannot work; nothing was started.", style="bold red"))
    for fault in faults:
        console.print(Text(f"  {fault}"), soft_wrap=True)


async def _stop_on_signal(manager: RunManager, console: Console) -> None:
    """Interrupt the run at the first signal; cut it off at the second."""
    async with anyio.create_task_group() as group:
        with anyio.open_signal_receiver(*signals_heard()) as signals:
            grace_seconds = GRACE_SECONDS
            async for _ in signals:
                if grace_seconds:
                    console.print("Interrupted: stopping the engine and writing the report. Once more cuts it off.")
                group.start_soon(manager.shutdown, grace_seconds)
                grace_seconds = 0.0


def signals_heard() -> list[signal.Signals]:
    """What a command ends at. Under nohup a terminal that hangs up is nothing to stop for."""
    heard = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        heard.append(signal.SIGHUP)
    return heard
