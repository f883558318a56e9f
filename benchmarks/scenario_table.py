"""`docs/scenarios.md`, from the reports of the runs. Pure."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from loadgen.coverage import Coverage
from loadgen.scenarios import Scenario
from service.report.fields import fields_of

Report = Mapping[str, Any]
"""A run's `report.json`."""

_COLUMNS = (
    "scenario",
    "decode steps",
    "tight",
    "critical",
    "retractions",
    "evicted pages",
    "cells",
    "of reachable",
    "findings",
)


@dataclass(frozen=True)
class Made:
    """How the numbers were made.

    Attributes:
        command: what makes them again.
        date: of the last run, such as `2026-11-30`.
        machine: the machine, in a few words.
        engine: the engine, in a few words.
        seconds: time under load that was asked for, a run.
        seed: of every run.
    """

    command: str
    date: str
    machine: str
    engine: str
    seconds: float
    seed: int


def page(
    scenarios: Mapping[str, type[Scenario[Any]]],
    options: Mapping[str, Mapping[str, Any]],
    reports: Mapping[int, Mapping[str, Report]],
    together: Mapping[int, str],
    made: Made,
) -> str:
    """The whole page.

    Args:
        scenarios: what it describes, by name.
        options: what each was run with, besides its defaults.
        reports: by pages in the pool and by scenario; a scenario that was not run is missing.
        together: by pages, how much of the edge all runs have covered between them.
    """
    parts = [
        "# Scenarios",
        "A scenario is a way of making load: a pure planner in `loadgen/scenarios`. Each leans on some mechanism of "
        "SGLang's scheduler, which its section below names. `lastpage soak --scenario NAME` runs one.",
        f"This page is made by `{made.command}`, {made.seconds:g} s under load each, on {made.engine}, "
        f"{made.machine}, seed {made.seed}, {made.date}. *Cells* are the reachable tight cells that were hit: kinds "
        "of decode steps that took the very last page, told apart by need, batch size, trailing rows, "
        "what filled the pool and what came just before. The other words are in the [README](../README.md).",
    ]
    for pages, by_scenario in reports.items():
        parts += [f"## On {pages} pages", table(by_scenario)]
        if pages in together:
            parts.append(together[pages])
    parts += [section(name, scenario, options.get(name, {})) for name, scenario in scenarios.items()]
    return "\n\n".join(parts) + "\n"


def table(reports: Mapping[str, Report]) -> str:
    """A row a scenario."""
    rows = [_COLUMNS, ("---", *["---:"] * (len(_COLUMNS) - 2), "---")]
    rows += [(f"[{name}](#{name})", *row(report)) for name, report in reports.items()]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def row(report: Report) -> tuple[str, ...]:
    """What stands behind a scenario's name. What a report does not tell is left empty, never taken for 0."""
    measures: Mapping[str, Any] = report.get("measures") or {}
    steps = measures.get("decode_steps")
    coverage = measures.get("coverage") or {}
    counts = [_number(measures.get(name)) for name in ("retractions", "evicted_pages")]
    return (
        _number(steps),
        _of(measures.get("tight_steps"), steps),
        _of(measures.get("critical_steps"), steps),
        *counts,
        _number(coverage.get("hit")),
        f"{coverage['share']:.1%}" if "share" in coverage else "",
        findings(report),
    )


def findings(report: Report) -> str:
    """What the run found wrong with the engine, by kind; `none` when it ended well."""
    if report.get("status") != "finished":
        return f"{report.get('status')}: {_one_line(report.get('detail'))}"
    counts: Counter[str] = Counter()
    for crash in report.get("crashes", ()):
        counts[f"crash ({crash['kind']})"] += 1
    for finding in report.get("findings") or ():
        waived = " (waived)" if finding.get("waived") else ""
        counts[f"{finding['kind']}{waived}"] += finding.get("count") or 1
    failed = (report.get("measures") or {}).get("failed_requests")
    if failed:
        counts["failed request"] += failed
    return ", ".join(f"{count:,} {kind}" for kind, count in counts.items()) or "none"


def union(reports: Iterable[Report]) -> str:
    """How much of the edge the runs have covered between them; empty when they do not tell."""
    parts, seconds = [], 0.0
    for report in reports:
        measures = report.get("measures") or {}
        told = measures.get("coverage")
        if told and told.get("tight") is not None and told.get("server"):
            parts.append(_coverage(told))
            seconds += measures.get("seconds_under_load", 0.0)
    if not parts:
        return ""
    whole = Coverage.together(parts)
    return (
        f"Together, in {seconds:,.0f} s of load: **{len(whole.covered):,} of {len(whole.reachable_tight):,} reachable "
        f"tight cells, {whole.share:.1%}**."
    )


def _coverage(told: Mapping[str, Any]) -> Coverage:
    from service.runs.coverage import EdgeCoverage, read_back

    return read_back(EdgeCoverage.model_validate(told))


def section(name: str, scenario: type[Scenario[Any]], given: Mapping[str, Any]) -> str:
    """What a scenario is, and which options it has."""
    module = inspect.getmodule(scenario)
    mechanism = inspect.cleandoc((module.__doc__ if module else None) or scenario.__doc__ or "")
    parts = [f"## {name}", f"*{scenario.summary}.*", mechanism, _options(scenario)]
    if given:
        words = ", ".join(f"`{option}={value}`" for option, value in given.items())
        parts.append(f"In the tables above it was run with {words}.")
    return "\n\n".join(part for part in parts if part)


def _options(scenario: type[Scenario[Any]]) -> str:
    rows = []
    for field in fields_of(scenario.Options):
        default = f"`{field.default}`" if field.default else "required"
        meaning = _one_line(field.description).replace("|", "\\|")
        rows.append(f"| `{field.name}` | {default} | {meaning} |")
    return "\n".join(["| option | default | meaning |", "| --- | --- | --- |", *rows]) if rows else ""


def _one_line(text: Any) -> str:
    return " ".join(str(text or "").split())


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else ""


def _of(count: Any, steps: Any) -> str:
    if not isinstance(count, int):
        return ""
    return f"{count:,} ({count / steps:.0%})" if steps else f"{count:,}"
