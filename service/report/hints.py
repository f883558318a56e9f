"""What to make of a verdict: what to do about one that shows nothing, and what a pass does not show. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from loadgen.scenarios import SCENARIOS, Scenario
from service.measures import COVERAGE_SHARE
from service.runs.model import Measures, Run, RunStatus, Verdict
from service.spec.spec import RunSpec
from service.spec.thresholds import Threshold


def restarts_text(measures: Measures) -> str:
    """How often the load began anew, and the most frequent reason; empty when it never did."""
    if not measures.load_restarts:
        return ""
    times = "once" if measures.load_restarts == 1 else f"{measures.load_restarts:,} times"
    if not measures.restart_reasons:
        return f"load began anew {times}; plan.jsonl says why"
    reason, count = max(measures.restart_reasons.items(), key=lambda item: item[1])
    mostly = "because" if count == measures.load_restarts else "most often because"
    return f"load began anew {times}, {mostly} {reason}"


def hints(run: Run) -> Iterator[str]:
    """Advice to a person, a sentence each."""
    measures = run.measures
    if run.status is not RunStatus.FINISHED:
        return
    if run.simulated:
        yield "the engine was simulated: for a verdict about SGLang name one that has it, see `lastpage engine list`"
    if run.verdict is Verdict.INCONCLUSIVE:
        yield from _inconclusive(run)
    elif run.verdict is Verdict.PASS and measures.critical_share < (_expected_critical_share(run.spec) or 0):
        yield f"the critical share of {measures.critical_share:.1%} is low for this scenario, though enough for a pass"
        yield from _disturbed(measures)


def hints_before(spec: RunSpec) -> Iterator[str]:
    """Advice on a run that has not begun, a sentence each."""
    load = spec.load
    scenario = SCENARIOS.get(load.scenario)
    if load.until_coverage is not None and scenario is not None and not scenario.targets_cells:
        aiming = _names(" and ", lambda other: other.targets_cells)
        yield (
            f"the scenario {load.scenario} does not aim at cells that were not yet hit, and may never cover "
            f"{load.until_coverage:.0%} of them; {aiming} do"
        )


def _inconclusive(run: Run) -> Iterator[str]:
    missed = _missed(run)
    if missed and all(threshold.measure == COVERAGE_SHARE for threshold in missed):
        scenario = SCENARIOS.get(run.spec.load.scenario)
        aims = scenario is not None and scenario.targets_cells
        aiming = _names(" or ", lambda other: other.targets_cells)
        other = "" if aims else f", or with the scenario {aiming}, which aims at what was not hit"
        yield f"only the coverage is short: run it for longer (--duration){other}"
        return
    if _expected_critical_share(run.spec) is None:
        if any(threshold.measure != COVERAGE_SHARE and threshold.is_edge for threshold in missed):
            at_the_edge = _names(" or ", lambda other: other.expected_critical_share is not None)
            yield (
                f"the scenario {run.spec.load.scenario} does not aim for the edge in every step, as {at_the_edge} "
                "does: run it for longer (--duration) or on a smaller pool (--pool-pages)"
            )
        return
    yield from _disturbed(run.measures)
    if run.simulated:
        yield (
            "a machine that is too slow for the scale of its time loses the edge: set a smaller one, as in "
            """LASTPAGE_SIMULATION='{"time_scale": 2}'"""
        )
        return
    yield "run it again on a machine with less other work, or for longer (--duration)"


def _expected_critical_share(spec: RunSpec) -> float | None:
    scenario = SCENARIOS.get(spec.load.scenario)
    return None if scenario is None else scenario.expected_critical_share


def _names(between: str, chosen: Callable[[type[Scenario[Any]]], bool]) -> str:
    return between.join(name for name, scenario in SCENARIOS.items() if chosen(scenario))


def _missed(run: Run) -> list[Threshold]:
    """The thresholds that the run broke, or that could not be judged."""
    values = run.measures.model_dump()
    thresholds = map(Threshold.parse, run.spec.thresholds)
    return [threshold for threshold in thresholds if not threshold.met_by(values)]


def _disturbed(measures: Measures) -> Iterator[str]:
    if measures.load_restarts:
        times = "once" if measures.load_restarts == 1 else f"{measures.load_restarts:,} times"
        yield f"the load lost the edge {times} and had to find it again, as on a machine that is too busy"
