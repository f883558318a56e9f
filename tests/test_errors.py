"""Claims about the pictures of errors: they show every error, and where it stands."""

from __future__ import annotations

import ast
import builtins
import re
from pathlib import Path

import pytest

import loadgen.errors
import service.errors

ROOT = Path(__file__).parent.parent
APART = {"NotAFlightFile", "UnexpectedAllocator", "RequestRefused", "SchedulerFailure"}
"""Those inside an engine: the plugin runs in SGLang, and the simulated engine fails as SGLang does."""
PACKAGES = ["service", "loadgen"]
PICTURES = {"service": service.errors.__doc__ or "", "loadgen": loadgen.errors.__doc__ or ""}


def drawn(package: str) -> dict[str, str | None]:
    """The parent of each error in a package's picture."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in PICTURES[package].splitlines():
        found = re.match(r"([│├└─ ]*)([A-Z]\w+) {2,}\S", line)
        if found is None:
            continue
        depth = len(found[1]) // 4
        path[depth:] = [found[2]]
        parents[found[2]] = path[depth - 1] if depth else None
    return parents


def classes(package: str) -> dict[str, list[str]]:
    """All public classes of a package with their bases, by name."""
    found: dict[str, list[str]] = {}
    for path in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name] = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
    return found


def errors(package: str) -> dict[str, list[str]]:
    """Those that are exceptions."""
    known = classes(package)

    def raised(name: str) -> bool:
        builtin = getattr(builtins, name, None)
        if isinstance(builtin, type):
            return issubclass(builtin, BaseException)
        return any(map(raised, known.get(name, ())))

    return {name: bases for name, bases in known.items() if raised(name)}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_error_is_in_the_picture_and_nothing_else(package: str) -> None:
    assert set(drawn(package)) == set(errors(package))


@pytest.mark.parametrize("package", PACKAGES)
def test_every_error_is_a_child_of_the_one_above_it(package: str) -> None:
    known = errors(package)
    assert {name: known[name] for name, parent in drawn(package).items() if parent and parent not in known[name]} == {}


def test_each_picture_has_one_root_beside_those_inside_an_engine() -> None:
    assert {name for name, parent in drawn("service").items() if parent is None} == {"LastpageError", *APART}
    assert {name for name, parent in drawn("loadgen").items() if parent is None} == {"LoadError"}
