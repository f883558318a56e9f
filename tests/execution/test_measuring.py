"""Claims about measures: they say what the recorder and the load counted, and no more."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.driver import Tally
from loadgen.requests.outcome import Completion, RequestOutcome
from loadgen.scenarios import Restart, Restarts
from service.execution.measuring import histograms_of, measures_of, percentiles
from service.execution.recording import Recording
from service.plugin.recorder import FlightRecorder
from service.runs.model import Measures

RESTARTS = Restarts([Restart(0.1, "dry", "dry: 1"), Restart(0.2, "early", "early: 2"), Restart(0.3, "dry", "dry: 3")])


def measured(recording: Recording, tally: Tally, ready_ns: int = 0) -> Measures:
    recording.take()
    return measures_of(recording, tally, ready_ns=ready_ns, seconds_under_load=2.5, restarts=RESTARTS)


def test_steps_are_those_of_the_recorder(recording: Recording, writer: FlightRecorder) -> None:
    writer.count("prefill_batches")
    writer.count("prefill_batches")
    writer.count("tight_prefill_batches")
    writer.count("retractions", 2)
    writer.count("evicted_pages", 5)
    for need, free, trailing in [(0, 9, 0), (1, 2, 1), (2, 2, 0), (1, 1, 4), (1, 1, 5)]:
        writer.enter(8, need, free, trailing)
    seen = measured(recording, Tally())
    assert (seen.decode_steps, seen.crossing_steps, seen.tight_steps) == (5, 4, 3)
    assert (seen.clamped_steps, seen.critical_steps, seen.tight_not_critical_steps) == (3, 2, 1)
    assert (
        seen.prefill_batches,
        seen.tight_prefill_batches,
        seen.retractions,
        seen.evicted_pages,
        seen.load_restarts,
    ) == (2, 1, 2, 5, 3)
    assert seen.restart_reasons == {"dry": 2, "early": 1}
    assert (seen.critical_share, seen.tight_share) == (0.4, 0.6)
    assert (seen.surplus, seen.closest_over, seen.closest_under) == ({"0": 3, "1": 1}, 1, None)
    assert seen.seconds_under_load == 2.5


def test_time_to_the_first_critical_step_is_by_the_recorders_clock(
    recording: Recording, writer: FlightRecorder
) -> None:
    assert measured(recording, Tally()).ready_to_first_critical_seconds is None
    writer.enter(8, 1, 1, 4)
    (step,) = recording.last(1)
    seen = measured(recording, Tally(), ready_ns=step.at_ns - 250_000_000)
    assert seen.ready_to_first_critical_seconds == pytest.approx(0.25)


def test_requests_are_counted_by_outcome_and_only_failures_fail(recording: Recording) -> None:
    tally = Tally()
    for outcome in (
        RequestOutcome.DONE,
        RequestOutcome.DONE,
        RequestOutcome.CANCELLED,
        RequestOutcome.LOST,
        RequestOutcome.ABORTED,
    ):
        tally.add(Completion(outcome, seconds=1.0))
    seen = measured(recording, tally)
    assert seen.requests == {"aborted": 1, "cancelled": 1, "done": 2, "lost": 1}
    assert seen.failed_requests == 2


def test_latencies_are_told_where_the_load_knows_them(recording: Recording) -> None:
    tally = Tally()
    tally.add(Completion(RequestOutcome.DONE, seconds=2.0))
    assert measured(recording, tally).latencies is None
    for tenths in range(1, 11):
        tally.add(Completion(RequestOutcome.DONE, seconds=tenths / 10, first_token_seconds=tenths / 100))
    latencies = measured(recording, tally).latencies
    assert latencies is not None
    assert (latencies.ttft_ms.p50, latencies.ttft_ms.p90, latencies.ttft_ms.max) == pytest.approx((50, 90, 100))
    assert latencies.e2e_ms.max == 2000


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=200))
def test_a_percentile_is_the_least_value_that_so_many_do_not_exceed(seconds: list[float]) -> None:
    told = percentiles(seconds)
    for share, value in [(50, told.p50), (90, told.p90), (99, told.p99), (100, told.max)]:
        enough = math.ceil(share * len(seconds) / 100)
        least = min(one for one in seconds if sum(other <= one for other in seconds) >= enough)
        assert value == 1000 * least


def test_distributions_have_the_names_of_their_metrics(recording: Recording, writer: FlightRecorder) -> None:
    writer.enter(8, 1, 1, 4)
    tally = Tally()
    tally.add(Completion(RequestOutcome.DONE, seconds=2.0, first_token_seconds=0.5, token_gaps=(0.1, 0.2)))
    recording.take()
    counted = {name: sum(counts.counts) for name, counts in histograms_of(recording, tally).items()}
    assert counted == {
        "crossing_free_pages": 1,
        "crossing_surplus_pages": 1,
        "crossing_needed_pages": 1,
        "ttft_seconds": 1,
        "itl_seconds": 2,
        "e2e_seconds": 1,
    }
