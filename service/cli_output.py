"""What every command says, and how it refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console

EXIT_USAGE = 2


def console(*, stderr: bool = False) -> Console:
    """A console that leaves texts as they are, but for colour on a terminal."""
    from service.console import LastingConsole

    return LastingConsole(stderr=stderr, highlight=False)


def refuse(field: str, value: object, message: str) -> NoReturn:
    """Refuse a flag's value, with what is wrong with it; exits with `EXIT_USAGE`."""
    fail(f"{field} = {value!r}: {message}")


def fail(message: str) -> NoReturn:
    """Say what is wrong and exit with `EXIT_USAGE`."""
    typer.echo(message, err=True)
    raise typer.Exit(EXIT_USAGE)
