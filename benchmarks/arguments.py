"""What somebody asks a benchmark for, checked before anything starts; and what was measured earlier, which stays."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from service.spec.duration import parse_duration
from service.spec.faults import Fault, InvalidSpec

EXIT_USAGE = 2


def pools_asked(text: str) -> list[int]:
    """Pages in each pool, from a text such as `32,256`; whether there are such pools is not checked.

    Raises:
        InvalidSpec: some are no numbers.
    """
    pools, faults = [], []
    for word in text.split(","):
        try:
            pools.append(int(word))
        except ValueError:
            message = "not a number of pages; allowed: whole numbers with commas, as in 32,256"
            faults.append(Fault(field="pools", value=word, message=message))
    if faults:
        raise InvalidSpec(faults)
    return pools


def seconds_asked(text: str) -> float:
    """Seconds, from a text such as `90s`; whether a run can last so long is not checked.

    Raises:
        InvalidSpec: it is no duration.
    """
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InvalidSpec([Fault(field="duration", value=text, message=str(error))]) from error


def out_faults(path: Path) -> list[Fault]:
    """What keeps a file from being written when all has been measured."""
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        message = "it is not a regular file"
    elif not target.parent.is_dir():
        message = f"there is no folder {target.parent}"
    elif not os.access(target if target.exists() else target.parent, os.W_OK):
        message = "it cannot be written"
    else:
        return []
    return [Fault(field="out", value=str(path), message=message)]


def keep_faults(folder: Path) -> list[Fault]:
    """What keeps a folder from being used for what is measured. It is made if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return [Fault(field="keep", value=str(folder), message=f"cannot be used: {error.strerror or error}")]
    if not os.access(folder, os.W_OK | os.X_OK):
        return [Fault(field="keep", value=str(folder), message="it cannot be written to")]
    return []


def refuse(name: str, faults: Iterable[Fault]) -> int:
    """Tell each fault once, in a line; the exit code."""
    for line in dict.fromkeys(map(str, faults)):
        print(f"{name}: {line}", file=sys.stderr)
    return EXIT_USAGE


def set_aside(path: Path) -> None:
    """Give a file or folder that was made earlier another name, so that its own is free. Nothing is deleted.

    Raises:
        OSError: it cannot be renamed.
    """
    if not os.path.lexists(path) or (path.is_dir() and not any(path.iterdir())):
        return
    names = (path.with_name(f"{path.name}.{number}") for number in itertools.count(1))
    aside = next(name for name in names if not os.path.lexists(name))
    path.rename(aside)
    print(f"{path} cannot be taken up; it is {aside.name} now", file=sys.stderr, flush=True)
