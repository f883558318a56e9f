"""Claims about the life of a run."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from service.runs.lifecycle import NEXT, InvalidTransition, advance
from service.runs.model import Run, RunStatus
from service.spec.spec import RunSpec

START = datetime(2026, 11, 30, tzinfo=timezone.utc)


def new_run() -> Run:
    return Run(id="r", spec=RunSpec(), folder=Path("/nowhere"), created_at=START)


def test_a_run_that_goes_well_takes_every_step() -> None:
    run = new_run()
    for seconds, status in enumerate(("launching", "running", "draining", "finished"), start=1):
        run = advance(run, RunStatus(status), START + timedelta(seconds=seconds))
    assert run.status is RunStatus.FINISHED
    assert run.started_at == START + timedelta(seconds=1)
    assert run.finished_at == START + timedelta(seconds=4)


@given(st.lists(st.sampled_from(RunStatus)))
def test_no_path_leads_out_of_an_end_or_past_a_step(statuses: list[RunStatus]) -> None:
    run = new_run()
    for status in statuses:
        allowed = status in NEXT[run.status]
        try:
            run = advance(run, status, START)
        except InvalidTransition as error:
            assert not allowed
            assert run.status.value in str(error)
        else:
            assert allowed
    assert (run.finished_at is not None) == run.status.ended


def test_a_run_can_be_stopped_from_wherever_it_is() -> None:
    for status, following in NEXT.items():
        if not status.ended:
            assert {RunStatus.CANCELLED, RunStatus.INTERRUPTED} <= following
        else:
            assert not following


def test_a_restart_keeps_the_time_of_the_first_start() -> None:
    run = new_run()
    for seconds, status in enumerate(("launching", "running", "launching")):
        run = advance(run, RunStatus(status), START + timedelta(seconds=seconds))
    assert run.started_at == START
