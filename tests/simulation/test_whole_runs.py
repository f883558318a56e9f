"""Whole runs, from launch to report, on engines that are simulated: what each must be said to have done.

What only SGLang can show stands in tests/real; the way of a run is the same.
"""

from __future__ import annotations

import io
import json
import os
import signal
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from service.controller import Controller
from service.engine.process import procfs
from service.home import Home
from service.report.table import print_result
from service.runs.events import EventType, RunEvent
from service.runs.model import Progress, RunStatus, Verdict
from tests.simulation.runs import UNDER_LOAD, Ended, at_the_edge, carry_out, scheduler_pid

pytestmark = [pytest.mark.processes, pytest.mark.anyio, pytest.mark.timeout(60)]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def planted(event: str, step: int = UNDER_LOAD, **more: Any) -> dict[str, Any]:
    """Settings of an engine in which something goes wrong."""
    return {"events": [{"event": event, "step": step, **more}]}


def printed(ended: Ended) -> str:
    console = Console(file=io.StringIO(), width=160)
    print_result(console, ended.run)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def assert_evidence_is_complete(ended: Ended) -> None:
    """Every file that a crash names is there and holds something, and so do those of every run."""
    evidence = ended.crash.evidence
    assert set(evidence) == {"log", "flight", "steps", "plan", "repro"}
    for name in [*evidence.values(), "report.json", "spec.yaml"]:
        assert (ended.folder / name).stat().st_size > 0, name
    assert ended.steps[-1]["step"] == ended.crash.step
    lines = map(json.loads, (ended.folder / "plan.jsonl").read_text().splitlines())
    assert all(line.get("requests") or line["restart"] for line in lines)


# -- the edge, with the clamp


async def test_a_run_passes_at_the_edge_and_says_everywhere_that_it_was_simulated(home: Home) -> None:
    began = time.monotonic()
    ended = await carry_out(home)
    print(f"a whole run took {time.monotonic() - began:.2f} s")
    run, report = ended.run, ended.report
    assert (run.status, run.verdict) == (RunStatus.FINISHED, Verdict.PASS), run.reasons
    assert (run.measures.crashes, run.measures.failed_requests, run.measures.findings) == (0, 0, 0)
    assert run.measures.witnesses is not None and run.measures.witnesses.off is None
    assert run.measures.seconds_under_load >= 8.0
    assert (report["engine"]["profile"], report["engine"]["sglang_version"]) == ("simulated", "0.5.23+simulated")
    assert report["engine"]["simulation"]["time_scale"] == 20.0
    assert any("simulated" in reason for reason in report["reasons"])
    text = printed(ended)
    assert "PASS (simulated)" in text and "hint     the engine was simulated" in text
    assert [line for line in text.splitlines() if "PASS" in line and "simulated" not in line] == []


async def test_report_says_what_ran(home: Home) -> None:
    ended = await carry_out(home, {"name": "nightly"})
    report = ended.report
    engine = report["engine"]
    assert (report["seed"], report["load"]["scenario"], engine["name"]) == (11, "tight", "sim")
    assert engine["clamp"] is True and "--max-total-tokens" in engine["arguments"]
    times = {name: datetime.fromisoformat(at.replace("Z", "+00:00")) for name, at in report["times"].items()}
    assert times["created_at"] <= times["started_at"] < times["ready_at"] < times["finished_at"]
    spec = yaml.safe_load((ended.folder / "spec.yaml").read_text())
    assert (spec["engine"]["name"], spec["load"]["seed"]) == ("sim", 11)
    for name in ("report.json", "engine.log", "flight.bin", "spec.yaml"):
        assert name in printed(ended)


async def test_events_tell_the_run_from_its_creation_to_its_verdict(home: Home) -> None:
    ended = await carry_out(home)
    statuses = [event.run.status.value for event in ended.events if event.type is EventType.STATUS]
    assert list(dict.fromkeys(statuses)) == ["created", "launching", "running", "draining"]
    progress = [event.detail for event in ended.events if isinstance(event.detail, Progress)]
    steps = [one.measures.decode_steps for one in progress]
    assert len(progress) > 3 and steps == sorted(steps) and steps[-1] > 0
    assert ended.events[-1].type is EventType.FINISHED and ended.events[-1].run.verdict is Verdict.PASS


async def test_load_that_leaves_slack_shows_nothing(home: Home) -> None:
    ended = await carry_out(home, {"load": {"scenario": "steady"}, "thresholds": ["critical_steps >= 100"]})
    assert ended.run.verdict is Verdict.INCONCLUSIVE, ended.run.reasons
    assert ended.run.measures.decode_steps > 0 and ended.run.measures.failed_requests == 0
    assert any("critical_steps" in reason for reason in ended.run.reasons)


# -- the edge, without it


@pytest.mark.parametrize(("release", "allocator"), [("0.5.18", "installed"), ("0.5.23", "unpatched")])
async def test_without_the_clamp_the_first_critical_step_is_the_last(home: Home, release: str, allocator: str) -> None:
    ended = await carry_out(home, {"engine": {"allocator": allocator}}, release=release, dying_seconds=1)
    crash, last = ended.crash, ended.steps[-1]
    assert (ended.run.verdict, crash.kind.value) == (Verdict.FAIL, "oob_index"), ended.log
    assert last["need"] == last["free"] > 0 and last["trailing"] > 0 and last["outcome"] == "raised"
    assert ended.run.measures.critical_steps == 1
    assert "Traceback" in ended.log and "alloc_decode" in ended.log and "IndexError" in ended.log
    assert_evidence_is_complete(ended)
    assert "FAIL (simulated)" in printed(ended) and "oob_index" in printed(ended)


async def test_clamp_put_into_the_old_release_survives(home: Home) -> None:
    ended = await carry_out(home, {"engine": {"allocator": "patched"}}, release="0.5.18")
    assert ended.run.crashes == () and ended.run.measures.decode_steps > 0


# -- an engine that is taken away


async def test_killed_scheduler_is_noticed_and_classified(home: Home) -> None:
    killed_at = None

    async def kill(_: Controller, event: RunEvent) -> None:
        nonlocal killed_at
        if killed_at is None and at_the_edge(event):
            killed_at = datetime.now(timezone.utc)
            os.kill(scheduler_pid(event.run), signal.SIGKILL)

    ended = await carry_out(home, {"load": {"duration": "10m"}}, kill)
    assert (ended.run.verdict, ended.crash.kind.value) == (Verdict.FAIL, "killed")
    assert killed_at is not None and abs((ended.crash.at - killed_at).total_seconds()) < 2.0
    assert_evidence_is_complete(ended)


async def test_stopped_scheduler_is_a_hang(home: Home) -> None:
    stopped = False

    async def stop(_: Controller, event: RunEvent) -> None:
        nonlocal stopped
        if not stopped and at_the_edge(event):
            stopped = True
            os.kill(scheduler_pid(event.run), signal.SIGSTOP)

    ended = await carry_out(home, {"engine": {"hang_seconds": 5}, "load": {"duration": "10m"}}, stop)
    assert (ended.run.verdict, ended.crash.kind.value) == (Verdict.FAIL, "hang")
    # The machine is given a second for its own work, which is 20 s of this clock.
    assert ended.crash.noticed_after_seconds is not None and ended.crash.noticed_after_seconds >= 20
    assert_evidence_is_complete(ended)


@pytest.mark.parametrize(
    ("event", "more", "kind"),
    [
        ("crash", {}, "scheduler_exception"),
        ("signal", {"signal": int(signal.SIGSEGV)}, "segfault"),
        ("signal", {"signal": int(signal.SIGABRT)}, "aborted"),
        ("hang", {}, "hang"),
        ("silence", {}, "hang"),
    ],
)
async def test_planted_end_of_an_engine_is_what_the_run_tells(
    home: Home, event: str, more: dict[str, Any], kind: str
) -> None:
    spec = {"engine": {"hang_seconds": 2}, "load": {"duration": "10m"}}
    ended = await carry_out(home, spec, dying_seconds=2, **planted(event, **more))
    assert (ended.run.verdict, ended.crash.kind.value) == (Verdict.FAIL, kind), ended.crash
    # Before a hang is told of, the load takes back what is not served.
    requests = ended.run.measures.requests
    assert requests.get("lost", 0) + requests.get("cancelled", 0) > 0


async def test_slow_death_is_dated_by_the_exception_and_not_by_the_end_of_the_process(home: Home) -> None:
    """SGLang's process outlives an exception in its scheduler by seconds."""
    ended = await carry_out(
        home, {"engine": {"allocator": "unpatched"}, "load": {"duration": "10m"}}, dying_seconds=3600
    )
    assert ended.crash.kind.value == "oob_index"
    assert ended.crash.seconds_after_ready is not None and ended.crash.seconds_after_ready < 600


async def test_engine_that_does_not_boot_is_told_with_the_end_of_its_log(home: Home) -> None:
    ended = await carry_out(home, **planted("boot_failure", step=0))
    assert ended.run.status is RunStatus.FAILED_TO_START and ended.run.verdict is Verdict.INCONCLUSIVE
    assert "does not boot" in (ended.run.detail or "")


# -- an engine that lives and is wrong


async def test_a_wrong_token_is_seen_by_a_witness(home: Home) -> None:
    ended = await carry_out(
        home, {"load": {"duration": "20s", "witness_share": 0.5}}, **planted("wrong_output", step=1)
    )
    assert ended.run.verdict is Verdict.FAIL and ended.run.crashes == ()
    assert {finding.kind.value for finding in ended.findings} == {"wrong_output"}
    assert any("findings is" in reason for reason in ended.run.reasons)


async def test_a_request_that_is_never_served_is_found_starved(home: Home) -> None:
    load = {"duration": "60s", "starve_seconds": 2}
    ended = await carry_out(home, {"load": load}, **planted("starvation"))
    assert ended.run.verdict is Verdict.FAIL and ended.run.crashes == ()
    assert {finding.kind.value for finding in ended.findings} == {"starved"}


# -- a run that is stopped


async def test_cancelled_run_is_over_soon_and_so_is_its_engine(home: Home) -> None:
    pids = []

    async def cancel(controller: Controller, event: RunEvent) -> None:
        if at_the_edge(event) and not pids:
            pids.append(scheduler_pid(event.run))
            await controller.manager.cancel(event.run.id)

    ended = await carry_out(home, {"load": {"duration": "10m"}}, cancel)
    assert (ended.run.status, ended.run.crashes) == (RunStatus.CANCELLED, ())
    assert (stat := procfs.read_stat(pids[0])) is None or not stat.alive


async def test_interrupt_stops_everything_and_leaves_a_report(home: Home) -> None:
    asked = False

    async def interrupt(controller: Controller, event: RunEvent) -> None:
        nonlocal asked
        if at_the_edge(event) and not asked:
            asked = True
            await controller.manager.shutdown()

    ended = await carry_out(home, {"load": {"duration": "10m"}}, interrupt)
    assert ended.report["status"] == "interrupted"
    assert ended.report["measures"]["decode_steps"] > 0 and ended.report["crashes"] == []
