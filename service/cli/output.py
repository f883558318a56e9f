"""What every command says, and how it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console

EXIT_USAGE = 2


def console(*, stderr: bool = False) -> Console:
    """A console that leaves texts as they are, but for colour on a terminal."""
    from service.cli.console import LastingConsole

    return LastingConsole(stderr=stderr, highlight=False)


def folder(text: str) -> Path:
    """The value of an option that names a folder, which need not be there."""
    if not text:
        raise typer.BadParameter("it is empty; give the path of a folder")
    if Path(text).is_file():
        raise typer.BadParameter(f"{text!r} is a file; give the path of a folder")
    return Path(text)


def refuse(field: str, value: object, message: str) -> NoReturn:
    """Refuse a flag's value, with what is wrong with it; exits with `EXIT_USAGE`."""
    fail(f"{field} = {value!r}: {message}")


def fail(message: str) -> NoReturn:
    """Say what is wrong and exit with `EXIT_USAGE`."""
    typer.echo(message, err=True)
    raise typer.Exit(EXIT_USAGE)
