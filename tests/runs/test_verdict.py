"""Claims about thresholds and verdicts."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from loadgen.coverage import Coverage
from loadgen.requests.outcome import RequestOutcome
from loadgen.sglang.pages import Pool
from loadgen.sglang.server import ServerConfiguration
from service.measures import BOUNDED, COVERAGE_SHARE, MEASURES
from service.runs.coverage import edge_coverage
from service.runs.model import Latencies, Measures, Percentiles, RunStatus, Verdict
from service.runs.verdict import judge
from service.spec.thresholds import DEFAULT_THRESHOLDS, InvalidCondition, Threshold, effective_thresholds
from tests.fake_executor import AT_THE_EDGE

DEFAULTS = effective_thresholds(DEFAULT_THRESHOLDS)
COMPARISONS = ["==", "!=", ">=", "<=", ">", "<"]


def changed(**values: object) -> Measures:
    return AT_THE_EDGE.model_copy(update=values)


def test_a_run_that_reached_the_edge_and_broke_nothing_passes() -> None:
    verdict, reasons = judge(AT_THE_EDGE, DEFAULTS)
    assert verdict is Verdict.PASS
    assert "900 critical steps, 90.0% of 1,000 decode steps" in reasons[0]


def test_a_run_that_did_not_reach_the_edge_is_inconclusive_never_pass() -> None:
    verdict, reasons = judge(changed(tight_steps=43, critical_steps=0), DEFAULTS)
    assert verdict is Verdict.INCONCLUSIVE
    assert reasons == ("critical_steps is 0, expected >= 100",)


def test_a_crash_fails_a_run_that_did_not_reach_the_edge_often_enough() -> None:
    verdict, reasons = judge(changed(critical_steps=1, crashes=1), DEFAULTS)
    assert verdict is Verdict.FAIL
    assert reasons == (
        "crashes is 1, expected == 0",
        "critical_steps is 1, expected >= 100 (the run was cut short)",
    )


def test_a_crash_is_the_first_reason_wherever_its_threshold_stands() -> None:
    thresholds = effective_thresholds(["critical_steps >= 5000", "crashes <= 1"])
    reasons = judge(changed(critical_steps=1234, crashes=2, requests={"lost": 3}), thresholds).reasons
    assert reasons == (
        "crashes is 2, expected <= 1",
        "failed_requests is 3, expected == 0",
        "critical_steps is 1,234, expected >= 5,000 (the run was cut short)",
    )


def test_a_request_that_ended_badly_fails_the_run_and_a_cancelled_one_does_not() -> None:
    assert judge(changed(requests={"done": 5, "cancelled": 2}), DEFAULTS).verdict is Verdict.PASS
    for outcome in ("truncated", "aborted", "error", "refused", "lost", "timed_out", "anything new"):
        assert judge(changed(requests={"done": 5, outcome: 1}), DEFAULTS).verdict is Verdict.FAIL


def test_a_count_is_told_to_its_last_digit_and_a_share_to_its_sixth() -> None:
    thresholds = [Threshold.parse("critical_steps >= 12345678"), Threshold.parse("critical_share >= 99.5%")]
    third = changed(decode_steps=9, crossing_steps=3, tight_steps=3, critical_steps=3)
    assert judge(third, thresholds).reasons == (
        "critical_steps is 3, expected >= 12,345,678",
        "critical_share is 0.333333, expected >= 0.995",
    )


@pytest.mark.parametrize("status", [RunStatus.CANCELLED, RunStatus.INTERRUPTED, RunStatus.FAILED_TO_START])
def test_a_run_that_did_not_come_to_its_end_can_fail_but_not_pass(status: RunStatus) -> None:
    assert judge(AT_THE_EDGE, DEFAULTS, status).verdict is Verdict.INCONCLUSIVE
    assert judge(changed(crashes=1), DEFAULTS, status).verdict is Verdict.FAIL


def test_what_was_not_measured_leaves_a_doubt() -> None:
    threshold = [Threshold.parse("latencies.ttft_ms.p99 <= 500")]
    verdict, reasons = judge(AT_THE_EDGE, threshold)
    assert verdict is Verdict.INCONCLUSIVE
    assert "was not measured" in reasons[0]
    slow = Percentiles(p50=1, p90=2, p99=501, max=502)
    assert judge(changed(latencies=Latencies(ttft_ms=slow, e2e_ms=slow)), threshold).verdict is Verdict.FAIL


def test_requests_of_an_outcome_that_never_happened_are_none() -> None:
    assert judge(AT_THE_EDGE, [Threshold.parse("requests.lost == 0")]).verdict is Verdict.PASS
    assert judge(AT_THE_EDGE, [Threshold.parse("requests.done >= 401")]).verdict is Verdict.FAIL


@given(
    st.sampled_from(sorted(BOUNDED)),
    st.sampled_from(COMPARISONS),
    st.integers(-5, 10**20) | st.floats(allow_nan=False, allow_infinity=False),
)
def test_a_threshold_reads_back_as_it_was_written(measure: str, comparison: str, bound: float) -> None:
    threshold = Threshold(measure, comparison, float(bound))
    assert Threshold.parse(str(threshold)) == threshold


def test_a_threshold_may_name_every_number_of_the_measures_that_exists_and_no_other() -> None:
    """But for those of which the registry says that no threshold may."""
    percentiles = Percentiles(p50=1, p90=2, p99=3, max=4)
    whole = Measures(
        requests={outcome.value: 1 for outcome in RequestOutcome},
        latencies=Latencies(ttft_ms=percentiles, e2e_ms=percentiles),
        ready_to_first_critical_seconds=1.0,
        surplus={"1": 1, "-1": 1},
    ).model_dump()
    numbers = {name for name, value in whole.items() if isinstance(value, (int, float))}
    unbounded = {name for name in numbers if not MEASURES[name].threshold}
    assert {name for name in BOUNDED if "." not in name} == numbers - unbounded
    for name in BOUNDED.keys() - {COVERAGE_SHARE}:
        assert Threshold.parse(f"{name} >= 0").value_in(whole) is not None, name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "critical_steps",
        "critical_steps >=",
        "critical_steps => 1",
        "critical_steps >= many",
        "critical_steps >= 1 or crashes == 0",
        "steps > 1",
        "requests == 0",
        "surplus >= 1",
        "requests.typo >= 1",
        "critical_steps >= 1" + " " * 20_000 + "!",
        "__class__ > 1",
        "1 < crashes",
    ],
)
def test_what_is_no_threshold_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(InvalidCondition, match="critical_steps"):
        Threshold.parse(text)


def test_a_bound_that_no_number_can_hold_is_refused() -> None:
    with pytest.raises(InvalidCondition, match="finite"):
        Threshold.parse("critical_steps >= 1e400")


@pytest.mark.parametrize("measure", ["crashes", "failed_requests"])
def test_a_bound_on_what_went_wrong_can_be_loosened_but_not_lost(measure: str) -> None:
    for bound in ("== 0", "<= 3", "< 2"):
        assert f"{measure} {bound}" in map(str, effective_thresholds([f"{measure} {bound}"]))
    for bound in (">= 0", "> 0", "!= 3", "== 5", "< 0", "<= -1"):
        with pytest.raises(InvalidCondition, match=f"allowed: {measure} == 0"):
            effective_thresholds([f"{measure} {bound}"])


@pytest.mark.parametrize(
    "text",
    [
        "coverage.share >= 200%",
        "coverage.share > 100%",
        "crossing_share == 1.5",
        "tight_steps < 0",
        "evicted_pages == -1",
        "evicted_pages == 0.5",
    ],
)
def test_what_can_never_hold_is_refused(text: str) -> None:
    with pytest.raises(InvalidCondition, match="can never hold: "):
        effective_thresholds([text])


@pytest.mark.parametrize(
    "texts",
    [
        ["tight_steps >= 100", "tight_steps < 50"],
        ["tight_steps > 4", "tight_steps < 5"],
        ["tight_share >= 50%", "tight_share < 50%"],
        ["evicted_pages == 3", "evicted_pages != 3"],
    ],
)
def test_what_can_never_hold_together_is_refused(texts: list[str]) -> None:
    with pytest.raises(InvalidCondition, match="can never hold together"):
        effective_thresholds(texts)


@given(
    st.sampled_from(["tight_steps", "tight_share", "seconds_under_load", "latencies.ttft_ms.p99"]),
    st.lists(st.tuples(st.sampled_from(COMPARISONS), st.integers(-1, 9).map(lambda n: n / 8)), min_size=1, max_size=3),
    st.integers(0, 32),
)
def test_what_a_number_meets_is_never_refused(measure: str, bounds: list[tuple[str, float]], number: int) -> None:
    value = number if measure == "tight_steps" else number / 32
    thresholds = [Threshold(measure, comparison, bound) for comparison, bound in bounds]
    assume(all(threshold.holds(value) for threshold in thresholds))
    given_back = effective_thresholds([*map(str, thresholds), "critical_steps >= 1"])
    assert set(thresholds) <= set(given_back)


@pytest.mark.parametrize("text", ["critical_steps >= 80%", "latencies.ttft_ms.p99 <= 5%", "seconds_under_load > 5%"])
def test_a_percentage_of_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(InvalidCondition, match="is no share"):
        Threshold.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "coverage.share >= 100%",
        "critical_share <= 0%",
        "evicted_pages == 0",
        "prefill_batches != 0",
        "seconds_under_load > 59.5",
    ],
)
def test_what_holds_at_the_very_end_of_its_range_is_not_refused(text: str) -> None:
    assert Threshold.parse(text) in effective_thresholds([text])


@pytest.mark.parametrize(
    "text", ["coverage.share < 10%", "coverage.share <= 0.49", "coverage.share == 0", "coverage.share == 0.4"]
)
def test_an_upper_bound_below_the_coverage_that_ends_the_load_is_refused(text: str) -> None:
    with pytest.raises(InvalidCondition, match=r"allowed: a lower bound, as in coverage\.share >= 0\.5"):
        effective_thresholds([text], until_coverage=0.5)


def test_an_upper_bound_does_not_replace_the_coverage_that_was_asked_for() -> None:
    both = list(map(str, effective_thresholds(["coverage.share <= 90%"], until_coverage=0.5)))
    assert {"coverage.share >= 0.5", "coverage.share <= 0.9"} <= set(both)
    again = list(map(str, effective_thresholds(both, until_coverage=0.5)))
    assert again == both, "a recorded spec reads back as it was"


@given(
    st.lists(st.builds(Threshold, st.sampled_from(sorted(BOUNDED)), st.sampled_from(["==", ">=", ">"]), st.just(0.0)))
)
def test_no_set_of_thresholds_lets_an_idle_run_pass(thresholds: list[Threshold]) -> None:
    try:
        effective = effective_thresholds(map(str, thresholds))
    except InvalidCondition:
        return
    assert judge(Measures(), effective).verdict is not Verdict.PASS


def test_shares_are_of_decode_steps() -> None:
    assert Measures().critical_share == 0
    assert (AT_THE_EDGE.critical_share, AT_THE_EDGE.tight_share, AT_THE_EDGE.crossing_share) == (0.9, 0.95, 0.98)
    assert AT_THE_EDGE.tight_not_critical_steps == 50


def test_the_closest_misses_are_told_on_either_side() -> None:
    measures = Measures(surplus={"0": 9, "3": 1, "2": 1, "-1": 4, "-5": 1})
    assert (measures.closest_over, measures.closest_under) == (2, 1)
    assert (Measures().closest_over, Measures().closest_under) == (None, None)


def test_measures_read_back_from_their_own_json() -> None:
    assert Measures.model_validate_json(AT_THE_EDGE.model_dump_json()) == AT_THE_EDGE


def test_a_run_that_covered_too_little_of_the_edge_is_inconclusive() -> None:
    threshold = Threshold.parse("coverage.share >= 90%")
    assert threshold.is_edge
    assert judge(AT_THE_EDGE, [threshold]).verdict is Verdict.INCONCLUSIVE
    server = ServerConfiguration(Pool(128, 4), overlap=False)
    coverage = Coverage(server)
    for share in (0.0, 1.0):
        told = edge_coverage(coverage, server, cells=False)
        assert told.share == share
        verdict = judge(AT_THE_EDGE.model_copy(update={"coverage": told}), [threshold]).verdict
        assert verdict is (Verdict.PASS if share else Verdict.INCONCLUSIVE)
        coverage.add(dict.fromkeys(coverage.reachable, 1))
