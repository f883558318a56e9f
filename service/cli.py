"""The command `lastpage`. What a command needs is imported in it, so that the help is there at once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from service.plugin.settings import Allocator

if TYPE_CHECKING:
    from rich.console import Console

EXIT_USAGE = 2
_EPILOG = (
    "Exit codes of soak: 0 pass, 1 fail, 2 usage or spec, 3 inconclusive, 4 the engine could not be started, "
    "130 interrupted."
)

app = typer.Typer(
    name="lastpage",
    help="Drives the KV page pool of an SGLang server exactly to exhaustion, proves that it got there, and says "
    "whether the server survived.",
    epilog=_EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
engine_app = typer.Typer(
    help="SGLang installations to run on: releases that lastpage installs, or others by their interpreter.",
    no_args_is_help=True,
)
app.add_typer(engine_app, name="engine")

_ENGINE = "Engine"
_LOAD = "Load"
_VERDICT = "Verdict"
_OUTPUT = "Spec and output"


@app.command(epilog=_EPILOG)
def soak(
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="Run spec in YAML or JSON; flags go before it.", rich_help_panel=_OUTPUT),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the run.", rich_help_panel=_OUTPUT)] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for report.json, engine.log, flight.bin and spec.yaml. Absent: a new one below LASTPAGE_HOME.",
            file_okay=False,
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="Engine by name, see `lastpage engine list`. Absent: one with an NPU, else the newest release.",
            rich_help_panel=_ENGINE,
        ),
    ] = None,
    allocator: Annotated[
        Allocator | None,
        typer.Option(
            help="Page allocator: SGLang's own, one with the clamp guaranteed, or one with the clamp removed. "
            "Default: installed.",
            rich_help_panel=_ENGINE,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Model folder. Absent: a tiny model with dummy weights.", rich_help_panel=_ENGINE),
    ] = None,
    page_size: Annotated[
        int | None, typer.Option(min=2, help="Tokens a page. Default: 128.", rich_help_panel=_ENGINE)
    ] = None,
    pool_pages: Annotated[
        int | None, typer.Option(min=2, help="Pages in the pool. Default: 32.", rich_help_panel=_ENGINE)
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port of the engine. Absent: a free one.", rich_help_panel=_ENGINE),
    ] = None,
    engine_arg: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ARG",
            help="One more SGLang argument, as in `--engine-arg --tp=2`; may be repeated. Arguments after `--` do the "
            "same.",
            rich_help_panel=_ENGINE,
        ),
    ] = None,
    scenario: Annotated[
        str | None,
        typer.Option(help="Scenario, see `lastpage scenarios`. Default: tight.", rich_help_panel=_LOAD),
    ] = None,
    duration: Annotated[
        str | None,
        typer.Option(help="Time under load: 60, 90s, 5m, 1h30m. Default: 60s.", rich_help_panel=_LOAD),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Seed of the load. Absent: drawn at random and recorded.", rich_help_panel=_LOAD),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Option of the scenario; may be repeated.", rich_help_panel=_LOAD),
    ] = None,
    min_critical: Annotated[
        int | None,
        typer.Option(
            min=1, help="Critical steps below which the run is inconclusive. Default: 100.", rich_help_panel=_VERDICT
        ),
    ] = None,
    threshold: Annotated[
        list[str] | None,
        typer.Option(
            metavar="BOUND",
            help="One more threshold, as in 'critical_share >= 80%'; may be repeated.",
            rich_help_panel=_VERDICT,
        ),
    ] = None,
    engine_args: Annotated[
        list[str] | None,
        typer.Argument(metavar="SGLANG_ARGS", help="After `--`: more SGLang arguments.", show_default=False),
    ] = None,
) -> None:
    """Launch an engine, drive its page pool exactly to exhaustion, and give a verdict.

    Without any flag: the tight scenario for 60 s on 32 pages of 128 tokens.
    """
    import anyio

    from service.controller import build_controller
    from service.runs.faults import InvalidSpec
    from service.runs.spec import load_yaml, parse_spec
    from service.soak import apply_flags, extend, parse_option, print_faults
    from service.soak import soak as carry_out

    if engine_args and not engine_args[0].startswith("-"):
        raise typer.BadParameter(f"unexpected {engine_args[0]!r}; SGLang arguments come after `--` and start with `-`")
    flags: dict[tuple[str, ...], Any] = {
        ("name",): name,
        ("engine", "name"): engine,
        ("engine", "allocator"): allocator.value if allocator else None,
        ("engine", "model"): model,
        ("engine", "page_size"): page_size,
        ("engine", "pool_pages"): pool_pages,
        ("engine", "port"): port,
        ("load", "scenario"): scenario,
        ("load", "duration"): duration,
        ("load", "seed"): seed,
    }
    bounds = [*(threshold or []), *([f"critical_steps >= {min_critical}"] if min_critical else [])]
    try:
        flags |= {("load", "options", key): value for key, value in map(parse_option, option or [])}
        data = apply_flags(load_yaml(file) if file else None, flags)
        data = extend(data, ("engine", "args"), [*(engine_arg or []), *(engine_args or [])])
        data = extend(data, ("thresholds",), bounds)
        spec = parse_spec(data)
    except InvalidSpec as error:
        print_faults(_console(stderr=True), error.faults)
        raise typer.Exit(EXIT_USAGE) from None
    raise typer.Exit(anyio.run(carry_out, build_controller(), spec, out, _console(), _console(stderr=True)))


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 is a free one.")] = 8000,
) -> None:
    """Serve the HTTP API until SIGINT or SIGTERM."""
    from service.controller import build_controller
    from service.server import listen
    from service.server import serve as carry_out

    try:
        listener = listen(host, port)
    except OSError as error:
        _refuse("port", port, f"cannot listen on {host}: {error.strerror or error}")
    typer.echo(f"lastpage serves on http://{host}:{listener.getsockname()[1]} (its API is described at /docs)")
    carry_out(build_controller(), listener)


@app.command()
def flight(
    file: Annotated[Path, typer.Argument(help="A flight recording: flight.bin of a run.")],
    last: Annotated[int, typer.Option("--last", "-n", min=1, help="How many steps to print.")] = 20,
) -> None:
    """Print the last decode steps of a flight recording, and its totals."""
    from service.plugin.recorder import FlightReader, NotAFlightFile
    from service.report.flight_table import print_flight

    try:
        reader = FlightReader(file)
    except (OSError, NotAFlightFile) as error:
        _refuse("file", str(file), getattr(error, "strerror", None) or str(error))
    print_flight(_console(), reader, last)


@app.command()
def scenarios() -> None:
    """List the scenarios and their options."""
    from loadgen.scenarios import SCENARIOS
    from service.report.listings import print_scenarios

    print_scenarios(_console(), SCENARIOS)


@app.command()
def version() -> None:
    """Print the version."""
    from service.report.json_report import lastpage_version

    typer.echo(lastpage_version())


@engine_app.command("install")
def engine_install(
    release: Annotated[str, typer.Argument(help="SGLang release, as in 0.5.23.", metavar="VERSION")],
    base: Annotated[
        str | None, typer.Option(help="Engine whose packages to share. Absent: the newest complete release.")
    ] = None,
    share: Annotated[bool, typer.Option(help="Share the packages of another installed release.")] = True,
) -> None:
    """Install a release of SGLang in an environment of its own, for the CPU rehearsal."""
    from service.engine.install import install
    from service.engine.installation import EngineError
    from service.home import Home

    try:
        found = install(Home.default(), release, base=base, shared=share, report=typer.echo)
    except EngineError as error:
        _fail(str(error))
    typer.echo(f"engine {found.name} is ready: {found.python}")


@engine_app.command("ensure")
def engine_ensure(
    release: Annotated[str, typer.Argument(help="SGLang release, as in 0.5.23.", metavar="VERSION")],
) -> None:
    """Have an engine to run on: this machine's own where it has an NPU, else that release, installed if it is not."""
    from service.engine.install import ensure
    from service.engine.installation import EngineError
    from service.home import Home

    try:
        ensure(Home.default(), release, report=typer.echo)
    except EngineError as error:
        _fail(str(error))


@engine_app.command("add")
def engine_add(
    name: Annotated[str, typer.Argument(help="Name to know it by.")],
    python: Annotated[Path, typer.Option(help="Interpreter whose environment holds SGLang.")],
) -> None:
    """Register an installation of SGLang by its interpreter; nothing is changed there."""
    from service.engine.installation import EngineError
    from service.engine.registry import EngineRegistry
    from service.home import Home

    try:
        EngineRegistry(Home.default()).add(name, python)
    except EngineError as error:
        _fail(str(error))
    typer.echo(f"engine {name} is registered; `lastpage engine check {name}` asks it about itself")


@engine_app.command("list")
def engine_list() -> None:
    """List the engines."""
    from service.engine.registry import EngineRegistry
    from service.home import Home
    from service.report.listings import print_engines

    print_engines(_console(), EngineRegistry(Home.default()).list())


@engine_app.command("check")
def engine_check(name: Annotated[str, typer.Argument(help="Engine to ask.")]) -> None:
    """Ask an engine which SGLang it has, whether its allocator has the clamp, and which NPUs it sees."""
    from service.engine.check import check
    from service.engine.installation import EngineError
    from service.engine.registry import EngineRegistry
    from service.home import Home
    from service.report.listings import print_check

    home = Home.default()
    try:
        engine = EngineRegistry(home).get(name)
    except EngineError as error:
        _fail(str(error))
    found = check(engine, home=home)
    print_check(_console(), engine, found)
    raise typer.Exit(1 if found.problem else 0)


@engine_app.command("remove")
def engine_remove(name: Annotated[str, typer.Argument(help="Engine to forget.")]) -> None:
    """Forget an engine, and delete its environment if lastpage built it."""
    from service.engine.installation import EngineError
    from service.engine.registry import EngineRegistry
    from service.home import Home

    try:
        EngineRegistry(Home.default()).remove(name)
    except EngineError as error:
        _fail(str(error))
    typer.echo(f"engine {name} is removed")


def main() -> None:
    """Run the command line."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)


def _console(*, stderr: bool = False) -> Console:
    from service.console import LastingConsole

    return LastingConsole(stderr=stderr, highlight=False)


def _refuse(field: str, value: object, message: str) -> NoReturn:
    _fail(f"{field} = {value!r}: {message}")


def _fail(message: str) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(EXIT_USAGE)


if __name__ == "__main__":
    main()
