"""The command `lastpage shrink`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.cli.output import EXIT_USAGE, console, folder

_EPILOG = (
    "Exit codes: 0 the result has crashed once more, 1 it has not (it is kept), 2 usage or spec, 3 the repro does not "
    "crash, 4 an engine could not be started, 130 interrupted (the best so far is kept)."
)


def _budget(text: str) -> float:
    from service.spec.duration import parse_duration

    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if not 0 < seconds < float("inf"):
        raise typer.BadParameter("allowed: more than 0 seconds")
    return seconds


def shrink(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="REPRO",
            help="The repro.yaml of a crash, or a spec of waves. That of a finding "
            "can be run again with soak, and not be shrunk.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for shrunk.yaml and trials.jsonl. Absent: a new one below LASTPAGE_HOME.",
            metavar="FOLDER",
            parser=folder,
        ),
    ] = None,
    budget: Annotated[
        float,
        typer.Option(
            parser=_budget,
            metavar="TIME",
            help="Time after which no more trial is begun to shorten it: 90s, 15m, 1h. The result is tried once more "
            "after that, which takes as long as a boot.",
            show_default="15m",
        ),
    ] = 900.0,
) -> None:
    """Make a repro as short as it can be while the engine still crashes in the same way.

    The best so far is always in shrunk.yaml, whatever ends it.
    """
    from service import event_loop
    from service.cli.shrinking import read_repro
    from service.cli.shrinking import shrink as carry_out
    from service.cli.soak import print_faults
    from service.home import Home
    from service.spec.faults import InvalidSpec

    try:
        repro = read_repro(file)
    except InvalidSpec as error:
        print_faults(console(stderr=True), error.faults)
        raise typer.Exit(EXIT_USAGE) from None
    raise typer.Exit(event_loop.run(carry_out, Home.default(), repro, out, budget, console(), console(stderr=True)))


def add_shrink(app: typer.Typer) -> None:
    """Make the command known."""
    app.command(epilog=_EPILOG)(shrink)
