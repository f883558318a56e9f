"""The verdict: what measures show, held against thresholds. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from service.runs.model import Measures, RunStatus, Verdict
from service.spec.thresholds import Threshold

_CUT_SHORT = {
    RunStatus.FAILED_TO_START: "the engine did not start",
    RunStatus.CANCELLED: "the run was cancelled before its time",
    RunStatus.INTERRUPTED: "the run was interrupted before its time",
}


class Judgement(NamedTuple):
    """A verdict, and why: broken thresholds, a crash first, then other failures; what was shown when none is broken."""

    verdict: Verdict
    reasons: tuple[str, ...]


SIMULATED = "simulated: no SGLang ran, so nothing is shown of a release"


def judge(
    measures: Measures,
    thresholds: Sequence[Threshold],
    status: RunStatus = RunStatus.FINISHED,
    *,
    simulated: bool = False,
) -> Judgement:
    """Hold measures against thresholds.

    A broken threshold fails the run, except that one on how often the edge was reached, or on something that was not
    measured, leaves it inconclusive. A run that did not come to its end can fail, but never pass.

    Args:
        status: how the run ended.
        simulated: whether the engine was; the last reason then says what that means.
    """
    judgement = _judged(measures, thresholds, status)
    return judgement._replace(reasons=(*judgement.reasons, SIMULATED)) if simulated else judgement


def _judged(measures: Measures, thresholds: Sequence[Threshold], status: RunStatus) -> Judgement:
    values = measures.model_dump()
    failures: list[str] = []
    doubts: list[str] = [_CUT_SHORT[status]] if status in _CUT_SHORT else []
    cut_short = " (the run was cut short)" if measures.crashes else ""
    for threshold in sorted(thresholds, key=lambda threshold: threshold.measure != "crashes"):
        value = threshold.value_in(values)
        if value is None:
            doubts.append(
                f"{threshold.measure} was not measured, expected {threshold.comparison} {_number(threshold.bound)}"
            )
        elif not threshold.holds(value):
            reason = (
                f"{threshold.measure} is {_number(value)}, expected {threshold.comparison} {_number(threshold.bound)}"
            )
            if threshold.is_edge:
                doubts.append(reason + cut_short)
            else:
                failures.append(reason)
    if failures:
        return Judgement(Verdict.FAIL, (*failures, *doubts))
    if doubts:
        return Judgement(Verdict.INCONCLUSIVE, tuple(doubts))
    return Judgement(Verdict.PASS, (_shown(measures),))


def _shown(measures: Measures) -> str:
    return (
        f"the pool was driven exactly to exhaustion in {measures.critical_steps:,} critical steps, "
        f"{measures.critical_share:.1%} of {measures.decode_steps:,} decode steps, and no threshold was broken"
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value.is_integer() else f"{value:,.6g}"
