"""Claims about the pictures of errors: they show every error, and where it stands."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from types import ModuleType

import pytest

import loadgen
import loadgen.errors
import service
import service.errors

PLUGIN = {"NotAFlightFile", "UnexpectedAllocator"}


def drawn(picture: ModuleType) -> dict[str, str | None]:
    """The parent of each error in a module's picture."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in (picture.__doc__ or "").splitlines():
        found = re.match(r"([│├└─ ]*)([A-Z]\w+) {2,}\S", line)
        if found is None:
            continue
        depth = len(found[1]) // 4
        path[depth:] = [found[2]]
        parents[found[2]] = path[depth - 1] if depth else None
    return parents


def errors(package: ModuleType) -> dict[str, type[Exception]]:
    """All public exception classes of a package, by name."""
    found: dict[str, type[Exception]] = {}
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if module.name.endswith("__main__"):
            continue
        try:
            imported = importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            assert error.name == "sglang", "only what runs inside SGLang cannot be imported here"
            continue
        for name, value in vars(imported).items():
            own = inspect.isclass(value) and issubclass(value, Exception) and value.__module__ == module.name
            if own and not name.startswith("_"):
                assert name not in found, f"two errors called {name}"
                found[name] = value
    return found


@pytest.mark.parametrize(("package", "picture"), [(service, service.errors), (loadgen, loadgen.errors)])
def test_every_error_is_in_the_picture_and_nothing_else(package: ModuleType, picture: ModuleType) -> None:
    assert set(drawn(picture)) == set(errors(package))


@pytest.mark.parametrize(("package", "picture"), [(service, service.errors), (loadgen, loadgen.errors)])
def test_every_error_is_a_child_of_the_one_above_it(package: ModuleType, picture: ModuleType) -> None:
    known = errors(package)
    for name, parent in drawn(picture).items():
        if parent is not None:
            assert known[parent] in known[name].__bases__, name


def test_each_picture_has_one_root_beside_the_plugins_own() -> None:
    assert {name for name, parent in drawn(service.errors).items() if parent is None} == {"LastpageError", *PLUGIN}
    assert {name for name, parent in drawn(loadgen.errors).items() if parent is None} == {"LoadError"}
