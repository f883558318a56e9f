"""Engines and scenarios, listed for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from loadgen.scenarios import Scenario
from service.engine.check import EngineCheck
from service.engine.installation import Engine


def print_engines(console: Console, engines: Sequence[Engine]) -> None:
    """A line an engine."""
    if not engines:
        console.print("No engine yet: `lastpage engine install` or `lastpage engine add` makes one known.")
        return
    rows = [("name", "version", "origin", "interpreter")]
    rows += [(engine.name, engine.version or "", engine.origin, str(engine.python)) for engine in engines]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        console.print(Text("  ".join(cells).rstrip()), soft_wrap=True)


def print_check(console: Console, engine: Engine, check: EngineCheck) -> None:
    """What an engine said about itself."""
    clamp = {True: "yes", False: "no", None: "not known"}[check.clamp]
    npu = check.npu
    devices = f"{npu.count} x {npu.name}, torch_npu {npu.torch_npu}" if npu.available else npu.problem or "none"
    for name, value in (
        ("engine", engine.name),
        ("interpreter", str(engine.python)),
        ("SGLang", check.version or "not found"),
        ("torch", check.torch or "not found"),
        ("clamp", f"{clamp} (in its alloc_decode)"),
        ("NPU", devices),
        ("profile", check.profile.value),
    ):
        console.print(Text(f"{name:<12} {value}"), soft_wrap=True)
    if check.problem:
        console.print(Text(f"{'problem':<12} {check.problem}", style="red"), soft_wrap=True)


def print_scenarios(console: Console, scenarios: Mapping[str, type[Scenario[Any]]]) -> None:
    """A paragraph a scenario, with its options."""
    for name, scenario in sorted(scenarios.items()):
        console.print(Text.assemble((name, "bold"), f"  {scenario.summary}"), soft_wrap=True)
        for option, field in scenario.Options.model_fields.items():
            default = "required" if field.is_required() else f"default {field.get_default(call_default_factory=True)}"
            console.print(Text(f"    {option} ({default})  {field.description or ''}"), soft_wrap=True)
