"""What to make of a verdict: what to do about one that shows nothing, and what a pass does not show. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from service.runs.model import Measures, Run, RunStatus, Verdict

LOW_SHARE = 0.5
"""The tight scenario, undisturbed, is critical in far more of its decode steps than this."""

_TIGHT = "tight"


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
    if run.verdict is Verdict.INCONCLUSIVE:
        yield from _inconclusive(run)
    elif run.verdict is Verdict.PASS and run.spec.load.scenario == _TIGHT and measures.critical_share < LOW_SHARE:
        yield f"the critical share of {measures.critical_share:.1%} is low for this scenario, though enough for a pass"
        yield from _disturbed(measures)


def _inconclusive(run: Run) -> Iterator[str]:
    if run.spec.load.scenario != _TIGHT:
        yield f"the scenario {run.spec.load.scenario} does not aim for the edge in every step; tight does"
        return
    yield from _disturbed(run.measures)
    yield "run it again on a machine with less other work, or for longer (--duration)"


def _disturbed(measures: Measures) -> Iterator[str]:
    if measures.load_restarts:
        times = "once" if measures.load_restarts == 1 else f"{measures.load_restarts:,} times"
        yield f"the load lost the edge {times} and had to find it again, as on a machine that is too busy"
