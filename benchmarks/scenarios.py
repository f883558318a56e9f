"""Runs every scenario on a real server, and writes what came of it: `docs/scenarios.md`.

    python -m benchmarks.scenarios                                        # all, 60 s each on 32 and on 256 pages
    python -m benchmarks.scenarios tight churn --duration 20 --pools 32   # some, printed

Each run goes through the very manager that `lastpage soak` uses, one engine at a time. Finished runs are kept in a
folder, and are not made again when that folder is given with --keep. What stands there and cannot be taken up is
renamed, never deleted.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio.to_thread
from pydantic import ValidationError
from rich.console import Console

from benchmarks.arguments import keep_faults, out_faults, pools_asked, refuse, seconds_asked, set_aside
from benchmarks.scenario_table import Made, Report, page, union
from loadgen.scenarios import SCENARIOS, Scenario
from service import event_loop
from service.cli.soak import EXIT_INTERRUPTED, EXIT_SPEC, soak
from service.controller import build_controller
from service.engine.registry import DEFAULT_RELEASE
from service.execution.preflight import prepare
from service.files import write_atomically
from service.home import Home
from service.report.json_report import read_report
from service.report.report import ReportExtract
from service.runs.coverage import read_back
from service.runs.folder import REPORT_FILE
from service.spec.duration import format_duration
from service.spec.faults import Fault, InvalidSpec
from service.spec.parsing import parse_spec
from service.spec.spec import RunSpec

PAGE = Path(__file__).parents[1] / "docs" / "scenarios.md"
POOLS = (32, 256)
OPTIONS: Mapping[str, Mapping[str, Any]] = {}
"""Options that a scenario is run with here, besides its defaults."""

_SECONDS = 60.0
_SEED = 1
# What does not fit together when a scenario cannot work on a pool.
_OF_THE_POOL = ("engine.pool_pages", "engine.page_size", "load.options")


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
    """The report of a run that was made earlier, if it is whole, of this very spec, and came to its end."""
    try:
        report: Report = read_report(folder / REPORT_FILE)
        same = RunSpec.model_validate(report["spec"]) == spec
        told = ReportExtract.model_validate(report)
        if told.measures.coverage is not None:
            read_back(told.measures.coverage)
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return report if same and report.get("status") == "finished" else None


def faults_beside_the_pool(spec: RunSpec) -> tuple[list[Fault], list[Fault]]:
    """What keeps a spec from working: faults of whoever asks for it, and that the scenario does not fit the pool."""
    _, faults = prepare(spec, Home.default())
    of_the_pool = [fault for fault in faults if fault.field.startswith(_OF_THE_POOL)]
    return [fault for fault in faults if fault not in of_the_pool], of_the_pool


async def run(spec: RunSpec, folder: Path) -> Report:
    """Carry a run out; its report. One that the pool is too small or too large for is refused, and told as that.

    Raises:
        InvalidSpec: it cannot be run on any pool.
        Interrupted: by a signal.
        OSError: what stands in its folder cannot be set aside, or its report cannot be read.
    """
    faults, of_the_pool = await anyio.to_thread.run_sync(faults_beside_the_pool, spec)
    if faults:
        raise InvalidSpec(faults)
    if of_the_pool:
        return {"status": "refused", "detail": "; ".join(fault.message for fault in of_the_pool)}
    set_aside(folder)
    console = Console(stderr=True)
    code = await soak(build_controller(Home.default()), spec, folder, console, console)
    if code == EXIT_INTERRUPTED:
        raise Interrupted
    if code == EXIT_SPEC:
        raise InvalidSpec([Fault(field="", value=spec.name, message="refused, as told above")])
    return read_report(folder / REPORT_FILE)


def faults_before(names: Sequence[str], pools: Sequence[int], seconds: float, engine: str, kept: Path) -> list[Fault]:
    """What keeps a run that is not there yet from being made, whatever the pool."""
    faults: list[Fault] = []
    for pages in pools:
        for name in names:
            try:
                spec = spec_of(name, pages, seconds, engine)
            except InvalidSpec as error:
                faults += error.faults
                continue
            if finished_report(folder_of(name, pages, kept), spec) is None:
                faults += faults_beside_the_pool(spec)[0]
    return faults


def folder_of(name: str, pages: int, kept: Path) -> Path:
    return kept / f"{name}-{pages}-pages"


def run_all(
    names: Sequence[str], pools: Sequence[int], seconds: float, engine: str, kept: Path
) -> dict[int, dict[str, Report]]:
    """The reports by pages and scenario. Those that stand in the folder already are taken from there."""
    reports: dict[int, dict[str, Report]] = {}
    for pages in pools:
        reports[pages] = {}
        for name in names:
            folder = folder_of(name, pages, kept)
            spec = spec_of(name, pages, seconds, engine)
            report = finished_report(folder, spec)
            if report is None:
                print(f"\n{name} on {pages} pages, {format_duration(seconds)}", file=sys.stderr, flush=True)
                report = event_loop.run(run, spec, folder)
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
    parser.add_argument("--duration", default=f"{_SECONDS:g}s", help="under load, a run (default: %(default)s)")
    parser.add_argument("--engine", default=DEFAULT_RELEASE, help="engine by name (default: %(default)s)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="take up where an earlier call was interrupted")
    parser.add_argument("--out", type=Path, help="file to write; default: docs/scenarios.md, of some of them stdout")
    asked = parser.parse_args()
    kept = (asked.keep or Home.default().runs / f"scenarios-{time.strftime('%Y%m%d-%H%M%S')}").absolute()
    faults = [
        Fault(field="scenario", value=name, message=f"not among {', '.join(names)}")
        for name in asked.scenarios
        if name not in names
    ]
    pools, seconds = list(POOLS), _SECONDS
    try:
        pools = pools_asked(asked.pools)
    except InvalidSpec as error:
        faults += error.faults
    try:
        seconds = seconds_asked(asked.duration)
    except InvalidSpec as error:
        faults += error.faults
    chosen = [name for name in names if name in asked.scenarios or not asked.scenarios]
    whole = not asked.scenarios and tuple(pools) == POOLS
    out = asked.out or (PAGE if whole else None)
    faults += out_faults(out) if out is not None else []
    faults += faults_before(chosen or names, pools, seconds, asked.engine, kept)
    if faults := faults or keep_faults(kept):
        return refuse("scenarios", faults)
    print(f"runs are kept in {kept}; if interrupted, go on with --keep {kept}", file=sys.stderr)
    try:
        reports = run_all(chosen, pools, seconds, asked.engine, kept)
    except (Interrupted, KeyboardInterrupt):
        print(f"interrupted; go on with --keep {kept}", file=sys.stderr)
        return EXIT_INTERRUPTED
    except InvalidSpec as error:
        return refuse("scenarios", error.faults)
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
    if out is None:
        print(text, end="")
    else:
        write_atomically(out, text)
        print(f"wrote {out}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
