"""The commands `lastpage engine ...`. What a command needs is imported in it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.cli.output import console, fail

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
    python: Annotated[Path, typer.Option(help="Interpreter whose environment holds SGLang.")],
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
    try:
        engine = registry.addable(name, python)
        if ask and (problem := check(engine, home=home).problem):
            fail(f"no run can be made on it: {problem}; it is not registered (--no-check registers it all the same)")
        registry.record(engine)
    except EngineError as error:
        fail(str(error))
    typer.echo(f"engine {name} is registered")


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
