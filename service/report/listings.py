"""Engines and scenarios, listed for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from loadgen.scenarios import Scenario
from service.engine.check import EngineCheck
from service.engine.installation import Engine
from service.plugin.settings import Profile


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


_CLAMP = {
    True: "yes: its alloc_decode stays within the free list in a critical step",
    False: "no: its alloc_decode reads past the free list in a critical step",
    None: "not known",
}
_PROFILE = {Profile.ASCEND: "ascend: runs are on the NPU", Profile.REHEARSAL: "rehearsal: runs are on the CPU"}


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
    """A paragraph a scenario, with its options."""
    for name, scenario in sorted(scenarios.items()):
        console.print(Text.assemble((name, "bold"), f"  {scenario.summary}"), soft_wrap=True)
        for option, field in scenario.Options.model_fields.items():
            default = "required" if field.is_required() else f"default {field.get_default(call_default_factory=True)}"
            console.print(Text(f"    {option} ({default})  {field.description or ''}"), soft_wrap=True)
