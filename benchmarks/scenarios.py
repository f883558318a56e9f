"""Runs every scenario on a real server, and writes what came of it: `docs/scenarios.md`.

    python -m benchmarks.scenarios                                        # all, 60 s each on 32 and on 256 pages
    python -m benchmarks.scenarios tight churn --duration 20 --pools 32   # some, printed

Each run goes through the very manager that `lastpage soak` uses, one engine at a time. Finished runs are kept in a
folder, and are not made again when that folder is given with --keep.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
from pydantic import ValidationError
from rich.console import Console

from benchmarks.scenario_table import Made, Report, page, union
from loadgen.scenarios import SCENARIOS, Scenario
from service.controller import build_controller
from service.engine.registry import DEFAULT_RELEASE
from service.home import Home
from service.runs.duration import format_duration, parse_duration
from service.runs.folder import REPORT_FILE
from service.runs.spec import RunSpec, parse_spec
from service.soak import EXIT_INTERRUPTED, EXIT_SPEC, soak

PAGE = Path(__file__).parents[1] / "docs" / "scenarios.md"
POOLS = (32, 256)
OPTIONS: Mapping[str, Mapping[str, Any]] = {}
"""Options that a scenario is run with here, besides its defaults."""

_SEED = 1


class Interrupted(Exception):
    """Somebody stopped it. What has finished is kept."""


def runnable(scenario: type[Scenario[Any]]) -> bool:
    """Whether it can be run with the options it is given here: one that only sends what somebody wrote down cannot."""
    try:
        scenario.Options.model_validate(dict(OPTIONS.get(scenario.name, {})))
    except ValidationError:
        return False
    return True


def spec_of(scenario: str, pages: int, seconds: float, engine: str) -> RunSpec:
    """What is run of a scenario."""
    return parse_spec(
        {
            "name": f"{scenario} on {pages} pages",
            "engine": {"name": engine, "pool_pages": pages},
            "load": {
                "scenario": scenario,
                "duration": seconds,
                "seed": _SEED,
                "options": dict(OPTIONS.get(scenario, {})),
            },
        }
    )


def finished_report(folder: Path, spec: RunSpec) -> Report | None:
    """The report of a run that was made earlier, if it is one of this very spec and came to its end."""
    try:
        report: Report = json.loads((folder / REPORT_FILE).read_text())
        same = RunSpec.model_validate(report["spec"]) == spec
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return report if same and report.get("status") == "finished" else None


async def run(spec: RunSpec, folder: Path) -> Report:
    """Carry a run out; its report.

    Raises:
        Interrupted: by a signal.
    """
    shutil.rmtree(folder, ignore_errors=True)
    console = Console(stderr=True)
    code = await soak(build_controller(Home.default()), spec, folder, console, console)
    if code == EXIT_INTERRUPTED:
        raise Interrupted
    if code == EXIT_SPEC:
        return {"status": "refused", "detail": "it cannot work on this pool"}
    report: Report = json.loads((folder / REPORT_FILE).read_text())
    return report


def run_all(
    names: Sequence[str], pools: Sequence[int], seconds: float, engine: str, kept: Path
) -> dict[int, dict[str, Report]]:
    """The reports by pages and scenario. Those that stand in the folder already are taken from there."""
    reports: dict[int, dict[str, Report]] = {}
    for pages in pools:
        reports[pages] = {}
        for name in names:
            folder = kept / f"{name}-{pages}-pages"
            spec = spec_of(name, pages, seconds, engine)
            report = finished_report(folder, spec)
            if report is None:
                print(f"\n{name} on {pages} pages, {format_duration(seconds)}", file=sys.stderr, flush=True)
                report = anyio.run(run, spec, folder)
            reports[pages][name] = report
    return reports


def describe_engine(reports: Mapping[int, Mapping[str, Report]]) -> str:
    """Which engine ran, in a few words."""
    for by_scenario in reports.values():
        for report in by_scenario.values():
            if engine := report.get("engine"):
                kind = "a plain CPU (rehearsal)" if engine["profile"] == "rehearsal" else engine["device"] or "an NPU"
                return f"SGLang {engine['sglang_version']} on {kind}"
    return "no engine"


def describe_machine() -> str:
    return f"{os.cpu_count()} cores, {platform.machine()}"


def main() -> int:
    names = [name for name, scenario in SCENARIOS.items() if runnable(scenario)]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scenarios", description="What the scenarios reach.")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"some of {', '.join(names)} (default: all)")
    parser.add_argument("--pools", default=",".join(map(str, POOLS)), help="pages, with commas (default: %(default)s)")
    parser.add_argument("--duration", default="60s", help="under load, a run (default: %(default)s)")
    parser.add_argument("--engine", default=DEFAULT_RELEASE, help="engine by name (default: %(default)s)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="take up where an earlier call was interrupted")
    parser.add_argument("--out", type=Path, help="file to write; default: docs/scenarios.md, of some of them stdout")
    asked = parser.parse_args()
    if unknown := sorted(set(asked.scenarios) - set(names)):
        parser.error(f"{', '.join(unknown)}: not among {', '.join(names)}")
    try:
        pools, seconds = [int(pages) for pages in asked.pools.split(",")], parse_duration(asked.duration)
    except ValueError as error:
        parser.error(str(error))
    kept = asked.keep or Home.default().runs / f"scenarios-{time.strftime('%Y%m%d-%H%M%S')}"
    print(f"runs are kept in {kept}; if interrupted, go on with --keep {kept}", file=sys.stderr)
    chosen = [name for name in names if name in asked.scenarios or not asked.scenarios]
    try:
        reports = run_all(chosen, pools, seconds, asked.engine, kept.absolute())
    except (Interrupted, KeyboardInterrupt):
        print(f"interrupted; go on with --keep {kept}", file=sys.stderr)
        return EXIT_INTERRUPTED
    made = Made(
        command="make scenarios",
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        machine=describe_machine(),
        engine=describe_engine(reports),
        seconds=seconds,
        seed=_SEED,
    )
    shown = {name: scenario for name, scenario in SCENARIOS.items() if name in chosen or not asked.scenarios}
    together = {pages: text for pages, by_scenario in reports.items() if (text := union(by_scenario.values()))}
    text = page(shown, OPTIONS, reports, together, made)
    whole = not asked.scenarios and tuple(pools) == POOLS
    out = asked.out or (PAGE if whole else None)
    if out is None:
        print(text, end="")
    else:
        out.write_text(text, encoding="utf-8")
        print(f"wrote {out}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
