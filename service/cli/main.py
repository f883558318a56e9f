"""The command `lastpage`. What a command needs is imported in it, so that the help is there at once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from service.cli.coverage import coverage
from service.cli.engine import engine_app
from service.cli.output import EXIT_USAGE, console, folder, refuse
from service.cli.shrink import add_shrink
from service.home import HomeNotUsable
from service.plugin.settings import Allocator

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
app.add_typer(engine_app, name="engine")
app.command()(coverage)

_ENGINE = "Engine"
_LOAD = "Load"
_VERDICT = "Verdict"
_OUTPUT = "Spec and output"


def _print_version(requested: bool) -> None:
    if requested:
        version()
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


@app.command(epilog=_EPILOG)
def soak(
    file: Annotated[
        list[Path] | None,
        typer.Option(
            "--file",
            "-f",
            metavar="PATH",
            help="Run spec in YAML or JSON, one at most; flags override it.",
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the run.", rich_help_panel=_OUTPUT)] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="New or empty folder for report.json, engine.log, flight.bin and so on. Absent: one below "
            "LASTPAGE_HOME.",
            metavar="FOLDER",
            parser=folder,
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
        typer.Option(help="Model folder. Absent: a tiny model that the project writes.", rich_help_panel=_ENGINE),
    ] = None,
    page_size: Annotated[
        int | None, typer.Option(min=2, help="Tokens a page. Default: 128.", rich_help_panel=_ENGINE)
    ] = None,
    pool_pages: Annotated[
        int | None,
        typer.Option(
            min=2, help="Pages in the pool, all of which the load takes. Default: 32.", rich_help_panel=_ENGINE
        ),
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
        typer.Option(help="Scenario, see `lastpage scenarios`. Absent: the first of them.", rich_help_panel=_LOAD),
    ] = None,
    duration: Annotated[
        str | None,
        typer.Option(help="Time under load: 60, 90s, 10min, 1h30m. Default: 60s.", rich_help_panel=_LOAD),
    ] = None,
    until_coverage: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="End the load when this share of the reachable tight cells was hit, such as 0.9 or 90%; the run is "
            "inconclusive when it is not. `lastpage scenarios` tells which scenarios aim at cells.",
            rich_help_panel=_LOAD,
        ),
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

    Without any flag: the default scenario for 60 s on 32 pages of 128 tokens.
    """
    from service import event_loop
    from service.cli.soak import apply_flags, extend, parse_option, print_faults
    from service.cli.soak import soak as carry_out
    from service.controller import build_controller
    from service.spec.faults import InvalidSpec
    from service.spec.parsing import parse_spec
    from service.spec.yaml_text import load_yaml

    if engine_args and not engine_args[0].startswith("-"):
        raise typer.BadParameter(f"unexpected {engine_args[0]!r}; SGLang arguments come after `--` and start with `-`")
    if len(file or []) > 1:
        raise typer.BadParameter("only one spec file can be given", param_hint="'--file' / '-f'")
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
        ("load", "until_coverage"): until_coverage,
        ("load", "seed"): seed,
    }
    bounds = [*(threshold or []), *([f"critical_steps >= {min_critical}"] if min_critical else [])]
    try:
        flags |= {("load", "options", key): value for key, value in map(parse_option, option or [])}
        data = apply_flags(load_yaml(file[0], pipes=True) if file else None, flags)
        data = extend(data, ("engine", "args"), [*(engine_arg or []), *(engine_args or [])])
        data = extend(data, ("thresholds",), bounds)
        spec = parse_spec(data)
    except InvalidSpec as error:
        print_faults(console(stderr=True), error.faults)
        raise typer.Exit(EXIT_USAGE) from None
    raise typer.Exit(event_loop.run(carry_out, build_controller(), spec, out, console(), console(stderr=True)))


add_shrink(app)


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 is a free one.")] = 8000,
) -> None:
    """Serve the HTTP API until SIGINT or SIGTERM."""
    from service.api.serving import listen
    from service.api.serving import serve as carry_out
    from service.controller import build_controller

    try:
        listener = listen(host, port)
    except OSError as error:
        refuse("port", port, f"cannot listen on {host}: {error.strerror or error}")
    typer.echo(f"lastpage serves on http://{host}:{listener.getsockname()[1]} (its API is described at /docs)")
    carry_out(build_controller(), listener)


@app.command()
def flight(
    file: Annotated[Path, typer.Argument(help="A flight recording: flight.bin of a run.")],
    last: Annotated[int, typer.Option("--last", "-n", min=1, help="How many steps to print.")] = 20,
    whole: Annotated[
        bool,
        typer.Option("--all", help="Up to the end of the recording, steps after the load included."),
    ] = False,
) -> None:
    """Print the last decode steps of a flight recording, and its totals.

    With the run's report.json beside it: the last steps under load. What is made after it, when answers are compared,
    is left out. Steps are counted since the engine's boot.
    """
    from service.plugin.flight import NotAFlightFile
    from service.plugin.flight_reader import FlightReader
    from service.report.flight_table import load_beside, print_flight

    if file.exists() and not (file.is_file() or file.is_dir()):
        refuse("file", str(file), "it is not a regular file")
    try:
        reader = FlightReader(file)
    except (OSError, NotAFlightFile) as error:
        refuse("file", str(file), getattr(error, "strerror", None) or str(error))
    print_flight(console(), reader, last, None if whole else load_beside(file))


@app.command()
def scenarios(
    name: Annotated[str | None, typer.Argument(help="One scenario, with the mechanism that it leans on.")] = None,
) -> None:
    """List the scenarios and their options; defaults stand as `--option KEY=VALUE` takes them."""
    from loadgen.scenarios import SCENARIOS
    from service.report.listings import print_scenario, print_scenarios

    if name is None:
        print_scenarios(console(), SCENARIOS)
    elif name in SCENARIOS:
        print_scenario(console(), SCENARIOS[name])
    else:
        refuse("scenario", name, f"no such scenario; allowed: {', '.join(SCENARIOS)}")


@app.command()
def version() -> None:
    """Print the version."""
    from service.report.json_report import lastpage_version

    typer.echo(lastpage_version())


def main() -> None:
    """Run the command line."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except HomeNotUsable as error:
        typer.echo(str(error), err=True)
        sys.exit(EXIT_USAGE)


if __name__ == "__main__":
    main()
