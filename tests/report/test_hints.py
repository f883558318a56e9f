"""Claims about what a person is told to make of a verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.report.hints import hints, restarts_text
from service.runs.model import Measures, Run, RunStatus, Verdict
from service.spec.spec import RunSpec
from tests.fake_executor import AT_THE_EDGE
from tests.monitoring.test_metrics import NOW


def ended(verdict: Verdict, measures: Measures, scenario: str = "tight") -> Run:
    spec = RunSpec.model_validate({"load": {"scenario": scenario}})
    status = RunStatus.FINISHED
    return Run(id="r", spec=spec, folder=Path("f"), created_at=NOW, status=status, verdict=verdict, measures=measures)


@pytest.mark.parametrize(
    ("restarts", "reasons", "said"),
    [
        (0, {}, ""),
        (1, {}, "load began anew once; plan.jsonl says why"),
        (2, {"a": 2}, "load began anew 2 times, because a"),
        (1200, {"a": 200, "b": 1000}, "load began anew 1,200 times, most often because b"),
    ],
)
def test_the_most_frequent_reason_for_beginning_anew_is_told(restarts: int, reasons: dict[str, int], said: str) -> None:
    assert restarts_text(Measures(load_restarts=restarts, restart_reasons=reasons)) == said


def test_an_inconclusive_run_says_what_to_do() -> None:
    first, second = hints(ended(Verdict.INCONCLUSIVE, Measures(load_restarts=3)))
    assert "lost the edge 3 times" in first and "too busy" in first
    assert "--duration" in second


def test_an_inconclusive_run_of_another_scenario_is_told_of_tight() -> None:
    (hint,) = hints(ended(Verdict.INCONCLUSIVE, Measures(), "steady"))
    assert "tight does" in hint


def test_what_has_nothing_to_do_with_the_edge_gives_no_advice_on_it() -> None:
    spec = RunSpec.model_validate(
        {"load": {"scenario": "mixed"}, "thresholds": ["ready_to_first_critical_seconds < 5"]}
    )
    assert list(hints(ended(Verdict.INCONCLUSIVE, AT_THE_EDGE).model_copy(update={"spec": spec}))) == []


@pytest.mark.parametrize(("scenario", "other"), [("churn", True), ("mixed", False)])
def test_when_only_the_coverage_is_short_the_advice_is_time_or_a_scenario_that_aims(scenario: str, other: bool) -> None:
    spec = RunSpec.model_validate({"load": {"scenario": scenario, "until_coverage": 0.9}})
    short = ended(Verdict.INCONCLUSIVE, AT_THE_EDGE).model_copy(update={"spec": spec})
    (hint,) = hints(short)
    assert "only the coverage is short" in hint and "--duration" in hint
    assert ("scenario mixed" in hint) == other


def test_a_pass_with_a_low_critical_share_says_so_and_one_with_a_high_share_nothing() -> None:
    low = AT_THE_EDGE.model_copy(update={"critical_steps": 400})
    (hint,) = hints(ended(Verdict.PASS, low))
    assert "40.0% is low" in hint
    assert not list(hints(ended(Verdict.PASS, AT_THE_EDGE)))
