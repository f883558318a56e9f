"""Claims about the life of a run."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.runs.lifecycle import InvalidTransition, advance
from service.runs.model import Run, RunStatus
from service.spec.spec import RunSpec

START = datetime(2026, 11, 30, tzinfo=timezone.utc)
ENDS = ("cancelled", "failed_to_start", "finished", "interrupted")
# Drawn from the picture in `service.runs.lifecycle`, an arrow at a time, and not from its table.
ARROWS = {
    "created": {"created", "launching", "failed_to_start", "cancelled", "interrupted"},
    "launching": {"running", "failed_to_start", "cancelled", "interrupted"},
    "running": {"draining", "finished", "cancelled", "interrupted"},
    "draining": {"finished", "cancelled", "interrupted"},
    **{end: set() for end in ENDS},
}


def run_that_is(status: str) -> Run:
    return Run(id="r", spec=RunSpec(), folder=Path("/nowhere"), created_at=START, status=RunStatus(status))


def new_run() -> Run:
    return run_that_is("created")


def follows(status: RunStatus, following: RunStatus) -> bool:
    try:
        advance(run_that_is(status.value), following, START)
    except InvalidTransition:
        return False
    return True


def history(statuses: list[RunStatus]) -> list[Run]:
    """The run after each of these that could follow, a second apart."""
    runs = [new_run()]
    for status in statuses:
        try:
            runs.append(advance(runs[-1], status, START + timedelta(seconds=len(runs))))
        except InvalidTransition:
            continue
    return runs


def test_a_run_that_goes_well_takes_every_step() -> None:
    run = new_run()
    for seconds, status in enumerate(("launching", "running", "draining", "finished"), start=1):
        run = advance(run, RunStatus(status), START + timedelta(seconds=seconds))
    assert run.status is RunStatus.FINISHED
    assert run.started_at == START + timedelta(seconds=1)
    assert run.finished_at == START + timedelta(seconds=4)


@pytest.mark.parametrize("status", ARROWS)
def test_a_status_is_followed_by_those_to_which_the_picture_has_an_arrow(status: str) -> None:
    followed = set()
    for following in RunStatus:
        try:
            assert advance(run_that_is(status), following, START).status is following
        except InvalidTransition as refused:
            assert (refused.current.value, refused.following) == (status, following)
            assert f"is {status} and cannot become {following.value}" in str(refused)
        else:
            followed.add(following.value)
    assert followed == ARROWS[status]


def test_the_picture_has_every_status() -> None:
    assert set(ARROWS) == {status.value for status in RunStatus}
    assert {status.value for status in RunStatus if status.ended} == set(ENDS)


def test_what_may_follow_is_told_with_the_refusal() -> None:
    with pytest.raises(InvalidTransition, match=r"allowed: cancelled, draining, finished, interrupted$"):
        advance(run_that_is("running"), RunStatus.LAUNCHING, START)
    with pytest.raises(InvalidTransition, match=r"allowed: nothing, it has ended$"):
        advance(run_that_is("finished"), RunStatus.RUNNING, START)


@given(st.lists(st.sampled_from(RunStatus)))
def test_an_ended_run_never_moves_and_no_other_has_an_end(statuses: list[RunStatus]) -> None:
    runs = history(statuses)
    for run in runs[:-1]:
        assert run.status.value not in ENDS
    for run in runs:
        assert (run.finished_at is not None) == (run.status.value in ENDS)


@given(st.lists(st.sampled_from(RunStatus)))
def test_no_run_finishes_that_was_not_under_load_and_none_is_under_load_that_was_not_launched(
    statuses: list[RunStatus],
) -> None:
    gone_through = [run.status.value for run in history(statuses)]
    if "finished" in gone_through:
        assert "running" in gone_through
    if "running" in gone_through:
        assert "launching" in gone_through


@given(st.lists(st.sampled_from(RunStatus)))
def test_nothing_is_gone_through_twice_but_waiting(statuses: list[RunStatus]) -> None:
    gone_through = [run.status.value for run in history(statuses) if run.status.value != "created"]
    assert len(gone_through) == len(set(gone_through))


@given(st.lists(st.sampled_from(RunStatus)))
def test_the_start_is_when_it_was_launched(statuses: list[RunStatus]) -> None:
    runs = history(statuses)
    launched = [place for place, run in enumerate(runs) if run.status is RunStatus.LAUNCHING]
    assert runs[-1].started_at == (START + timedelta(seconds=launched[0]) if launched else None)


def test_every_status_can_be_reached() -> None:
    reached: set[RunStatus] = set()
    new = {RunStatus.CREATED}
    while new:
        reached |= new
        new = {following for status in new for following in RunStatus if follows(status, following)} - reached
    assert reached == set(RunStatus)


def test_a_run_can_be_stopped_from_wherever_it_is() -> None:
    for status in set(ARROWS) - set(ENDS):
        for stopped in (RunStatus.CANCELLED, RunStatus.INTERRUPTED):
            assert advance(run_that_is(status), stopped, START).status is stopped


def test_what_is_said_of_a_status_is_gone_with_it() -> None:
    waiting = advance(new_run(), RunStatus.CREATED, START, "waits for the device")
    assert waiting.detail == "waits for the device"
    assert advance(waiting, RunStatus.LAUNCHING, START).detail is None
