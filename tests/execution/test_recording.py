"""Claims about a run's recording: what came before it does not count, and nothing after that is missed."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from service.execution.recording import Recording, wall_time
from service.plugin.flight import AllocationOutcome
from service.plugin.recorder import FlightRecorder

from .recordings import record


@pytest.fixture
def writer(tmp_path: Path) -> FlightRecorder:
    """A recorder that has seen the completion by which the engine showed that it serves."""
    made = record(tmp_path / "flight.bin")
    made.count("prefill_batches")
    made.enter(1, 1, 31, 0)
    made.enter(1, 1, 1, 1)
    made.raised(ValueError("before the load"))
    return made


@pytest.fixture
def recording(writer: FlightRecorder, tmp_path: Path) -> Recording:
    return Recording(tmp_path / "flight.bin")


def test_what_was_recorded_before_does_not_count(recording: Recording) -> None:
    totals = recording.totals()
    counts = (totals.decode_steps, totals.critical_steps, totals.prefill_batches, totals.exceptions)
    assert counts == (0, 0, 0, 0)
    assert recording.take() == []
    assert recording.steps_before == 2
    assert (recording.raised, recording.first_critical_ns, recording.last_step) == (False, None, None)


def test_each_step_is_taken_once(recording: Recording, writer: FlightRecorder) -> None:
    writer.enter(5, 0, 9, 0)
    assert [step.batch_size for step in recording.take()] == [5]
    assert recording.take() == []
    writer.enter(6, 0, 9, 0)
    writer.enter(7, 1, 1, 0)
    assert [step.batch_size for step in recording.take()] == [6, 7]
    assert recording.last_step is not None and recording.last_step.batch_size == 7
    assert recording.totals().decode_steps == 3


def test_steps_that_the_ring_has_lost_do_not_stop_it(tmp_path: Path) -> None:
    writer = record(tmp_path / "flight.bin", capacity=8)
    recording = Recording(tmp_path / "flight.bin")
    for number in range(20):
        writer.enter(number, 1, 2, 0)
    assert [step.batch_size for step in recording.take()] == list(range(12, 20))
    assert recording.totals().crossing_steps == 20


def test_single_steps_tell_surplus_and_the_first_critical_one(recording: Recording, writer: FlightRecorder) -> None:
    for need, free, trailing in [(0, 9, 0), (1, 2, 1), (1, 2, 0), (2, 2, 0), (1, 1, 4), (2, 1, 1), (1, 1, 2)]:
        writer.enter(8, need, free, trailing)
    steps = recording.take()
    assert recording.surplus == {1: 2, 0: 3, -1: 1}
    assert recording.first_critical_ns == steps[4].at_ns
    assert sum(recording.free_pages.counts().counts) == sum(recording.needed_pages.counts().counts) == 6


def test_an_exception_under_load_is_told_from_one_before(recording: Recording, writer: FlightRecorder) -> None:
    assert not recording.raised
    writer.raised(IndexError("index 1 is out of bounds"))
    assert recording.raised
    assert recording.error == "IndexError: index 1 is out of bounds"


def test_the_last_steps_are_read_anew_with_what_became_of_them(recording: Recording, writer: FlightRecorder) -> None:
    writer.enter(5, 1, 1, 1)
    assert recording.take()[0].outcome is AllocationOutcome.ENTERED
    writer.leave(AllocationOutcome.RAISED)
    assert [step.outcome for step in recording.last(1)] == [AllocationOutcome.RAISED]


def test_a_moment_of_the_recorders_clock_has_a_time_of_day() -> None:
    at = wall_time(time.monotonic_ns() - 3_000_000_000)
    assert datetime.now(timezone.utc) - at == pytest.approx(timedelta(seconds=3), abs=timedelta(seconds=0.5))
