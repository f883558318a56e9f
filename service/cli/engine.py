"""The commands `lastpage engine ...`. What a command needs is imported in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.output import console, fail, refuse

if TYPE_CHECKING:
    from service.engine.simulated import Simulation

engine_app = typer.Typer(
    help="SGLang installations to run on: releases that lastpage installs, or others by their interpreter.",
    no_args_is_help=True,
)


@engine_app.command("install")
def engine_install(
    release: Annotated[str, typer.Argument(help="SGLang release, as in 0.5.23.", metavar="VERSION")],
    base: Annotated[
        str | None, typer.Option(help="Engine whose packages to share. Absent: the newest complete release.")
    ] = None,
    share: Annotated[bool, typer.Option(help="Share the packages of another installed release.")] = True,
) -> None:
    """Install a release of SGLang in an environment of its own, for the CPU rehearsal."""
    from service.engine.install.install import install
    from service.errors import EngineError
    from service.home import Home

    try:
        found = install(Home.default(), release, base=base, shared=share, report=typer.echo)
    except EngineError as error:
        fail(str(error))
    typer.echo(f"engine {found.name} is ready: {found.python}")


@engine_app.command("ensure")
def engine_ensure(
    release: Annotated[str, typer.Argument(help="SGLang release, as in 0.5.23.", metavar="VERSION")],
) -> None:
    """Have an engine to run on: this machine's own where it has an NPU, else that release, installed if it is not."""
    from service.engine.install.install import ensure
    from service.errors import EngineError
    from service.home import Home

    try:
        ensure(Home.default(), release, report=typer.echo)
    except EngineError as error:
        fail(str(error))


@engine_app.command("add")
def engine_add(
    name: Annotated[str, typer.Argument(help="Name to know it by.")],
    python: Annotated[Path | None, typer.Option(help="Interpreter whose environment holds SGLang.")] = None,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="There is none: simulate it, for tests and for scale.")
    ] = False,
    release: Annotated[
        str | None, typer.Option(help="With --simulated: whose rules it follows. Default: the newest release's.")
    ] = None,
    settings: Annotated[
        str, typer.Option(metavar="JSON", help='With --simulated: its settings, as in {"time_scale": 60}.')
    ] = "{}",
    ask: Annotated[
        bool,
        typer.Option("--check/--no-check", help="Ask it whether runs can be made on it; if not, it is refused."),
    ] = True,
) -> None:
    """Register an installation of SGLang by its interpreter, once it says that runs can be made on it.

    Nothing is changed there.
    """
    from service.engine.check import check
    from service.engine.registry import EngineRegistry
    from service.errors import EngineError
    from service.home import Home

    home = Home.default()
    registry = EngineRegistry(home)
    if simulated != (python is None):
        fail("give the path of an interpreter (--python PATH), or --simulated for an engine without one")
    try:
        if python is None:
            registry.add_simulated(name, _simulation(settings, release))
            typer.echo(f"engine {name} is registered; it is simulated")
            return
        engine = registry.addable(name, python)
        if ask and (problem := check(engine, home=home).problem):
            fail(f"no run can be made on it: {problem}; it is not registered (--no-check registers it all the same)")
        registry.record(engine)
    except EngineError as error:
        fail(str(error))
    typer.echo(f"engine {name} is registered")


def _simulation(settings: str, release: str | None) -> Simulation:
    from service.engine.simulated import Simulation

    try:
        simulation = Simulation.from_json(settings)
        return replace(simulation, release=release) if release else simulation
    except ValueError as error:
        refuse("settings", settings, str(error))


@engine_app.command("list")
def engine_list() -> None:
    """List the engines."""
    from service.engine.registry import EngineRegistry
    from service.home import Home
    from service.report.listings import print_engines

    print_engines(console(), EngineRegistry(Home.default()).list())


@engine_app.command("check")
def engine_check(name: Annotated[str, typer.Argument(help="Engine to ask.")]) -> None:
    """Ask an engine which SGLang it has, whether its allocator has the clamp, and which NPUs it sees."""
    from service.engine.check import check
    from service.engine.registry import EngineRegistry
    from service.errors import EngineError
    from service.home import Home
    from service.report.listings import print_check

    home = Home.default()
    try:
        engine = EngineRegistry(home).get(name)
    except EngineError as error:
        fail(str(error))
    found = check(engine, home=home)
    print_check(console(), engine, found)
    raise typer.Exit(1 if found.problem else 0)


@engine_app.command("remove")
def engine_remove(name: Annotated[str, typer.Argument(help="Engine to forget.")]) -> None:
    """Forget an engine, and delete its environment if lastpage built it."""
    from service.engine.registry import EngineRegistry
    from service.errors import EngineError
    from service.home import Home

    try:
        EngineRegistry(Home.default()).remove(name)
    except EngineError as error:
        fail(str(error))
    typer.echo(f"engine {name} is removed")
