"""Engines and scenarios, listed for people."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from loadgen.scenarios import Scenario
from service.engine.check import EngineCheck
from service.engine.installation import Engine
from service.plugin.settings import Profile
from service.report.fields import FieldText, fields_of


def print_engines(console: Console, engines: Sequence[Engine]) -> None:
    """A line an engine."""
    if not engines:
        console.print("No engine yet: `lastpage engine install` or `lastpage engine add` makes one known.")
        console.print("Simulated engines need neither: `simulated`, and `simulated-0.5.18` with that release's rules.")
        return
    rows = [("name", "version", "origin", "interpreter")]
    rows += [(engine.name, engine.version or "", engine.origin, str(engine.python)) for engine in engines]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        console.print(Text("  ".join(cells).rstrip()), soft_wrap=True)


_CLAMP = {
    True: "yes: its alloc_decode stays within the free list in a critical step",
    False: "no: its alloc_decode reads past the free list in a critical step",
    None: "not known",
}
_PROFILE = {
    Profile.ASCEND: "ascend: runs are on the NPU",
    Profile.REHEARSAL: "rehearsal: runs are on the CPU",
    Profile.SIMULATED: "simulated: there is no SGLang, a model of its scheduler decides",
}


def print_check(console: Console, engine: Engine, check: EngineCheck) -> None:
    """What an engine said about itself, and whether runs can be made on it."""
    rows = [("engine", engine.name), ("interpreter", str(engine.python))]
    if check.version or check.torch:
        npu = check.npu
        devices = f"{npu.count} x {npu.name}, torch_npu {npu.torch_npu}" if npu.available else npu.problem or "none"
        rows += [
            ("SGLang", check.version or "not found"),
            ("torch", check.torch or "not found"),
            ("clamp", _CLAMP[check.clamp]),
            ("NPU", devices),
            ("profile", _PROFILE[check.profile]),
        ]
    for name, value in rows:
        console.print(Text(f"{name:<12} {value}"), soft_wrap=True)
    if check.problem:
        console.print(Text(f"{'problem':<12} {check.problem}; no run can be made on it", style="red"), soft_wrap=True)
    else:
        console.print(Text(f"{'runs':<12} can be made on it"), soft_wrap=True)


def print_scenarios(console: Console, scenarios: Mapping[str, type[Scenario[Any]]]) -> None:
    """A paragraph a scenario, with its options; the default one first."""
    for scenario in scenarios.values():
        _print_summary(console, scenario)


def print_scenario(console: Console, scenario: type[Scenario[Any]]) -> None:
    """One scenario: its options, and the mechanism that it leans on."""
    _print_summary(console, scenario)
    module = inspect.getmodule(scenario)
    mechanism = inspect.cleandoc((module.__doc__ if module else None) or "")
    console.print(Text(f"\n{mechanism}"), soft_wrap=True)


def _print_summary(console: Console, scenario: type[Scenario[Any]]) -> None:
    marks = [
        text
        for text, holds in (("the default", scenario.is_default), ("aims at cells", scenario.targets_cells))
        if holds
    ]
    marked = f" ({', '.join(marks)})" if marks else ""
    console.print(Text.assemble((scenario.name, "bold"), f"{marked}  {scenario.summary}"), soft_wrap=True)
    _print_fields(console, fields_of(scenario.Options), "    ")


def _print_fields(console: Console, fields: Iterable[FieldText], indent: str) -> None:
    for field in fields:
        default = f"default {field.default}" if field.default else "required"
        console.print(Text(f"{indent}{field.name} ({default})  {field.description}"), soft_wrap=True)
        _print_fields(console, field.inner, f"{indent}    ")
