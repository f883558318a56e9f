"""The scenarios there are: each is a module beside this one, or a folder with its module `scenario`.

A new one is a file to add: nothing else names it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from types import ModuleType
from typing import Any

from .base import Scenario


class Scenarios(Mapping[str, type[Scenario[Any]]]):
    """The scenarios of a package by name: the default one first, then those that aim at cells, and the rest by name.

    Its modules are imported when the first scenario is looked up, so that one of them can look up others itself.
    """

    def __init__(self, package: str) -> None:
        self._package = package

    @property
    def default(self) -> type[Scenario[Any]]:
        """The scenario of a spec that names none."""
        return next(iter(self.values()))

    def __getitem__(self, name: str) -> type[Scenario[Any]]:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    @cached_property
    def _by_name(self) -> dict[str, type[Scenario[Any]]]:
        package = importlib.import_module(self._package)
        found = pkgutil.walk_packages(package.__path__, f"{self._package}.")
        return in_order(
            scenario for module in found for scenario in _scenarios_of(importlib.import_module(module.name))
        )


def in_order(scenarios: Iterable[type[Scenario[Any]]]) -> dict[str, type[Scenario[Any]]]:
    """Scenarios by name, in the order in which they are shown.

    Raises:
        ValueError: two have one name, or there is not just one default.
    """
    ordered = sorted(scenarios, key=lambda each: (not each.is_default, not each.targets_cells, each.name))
    names = [scenario.name for scenario in ordered]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"more than one scenario has the name {', '.join(sorted(twice))}")
    defaults = [scenario.name for scenario in ordered if scenario.is_default]
    if len(defaults) != 1:
        raise ValueError(f"just one scenario has to be the default, not {', '.join(defaults) or 'none'}")
    return dict(zip(names, ordered, strict=True))


def _scenarios_of(module: ModuleType) -> Iterator[type[Scenario[Any]]]:
    """The scenarios that a module defines: classes with a name of their own."""
    for value in vars(module).values():
        defined_here = isinstance(value, type) and value.__module__ == module.__name__
        if defined_here and issubclass(value, Scenario) and "name" in vars(value):
            yield value


SCENARIOS = Scenarios(__package__ or "")
