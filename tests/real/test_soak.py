"""`lastpage soak` on the real releases: what each must be said to have done, and what is left to look at.

What else can be taken away in the middle of a run stands in tests/simulation. That a real server's hang is noticed
stands in test_prometheus.py, that nothing of it is left when its controller goes in test_process_real.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.real.soaks import LASTPAGE, ROOT, Soak, soak, soaking

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

WITH_CLAMP, WITHOUT_CLAMP = "0.5.23", "0.5.18"
# Wide enough for a machine that does other things as well. What is usual is printed.
CRASH_WITHIN_SECONDS = 3.0
PROMPT_WITHIN_SECONDS = 10.0
NOTICED_WITHIN_SECONDS = 2.0


def assert_evidence_is_complete(ended: Soak) -> None:
    """Every file that a crash names is there and holds something, and so do those of every run."""
    evidence = ended.crash["evidence"]
    assert set(evidence) == {"log", "flight", "steps", "plan", "repro"}
    for name in [*evidence.values(), "report.json", "spec.yaml"]:
        assert (ended.folder / name).stat().st_size > 0, name
    assert ended.steps[-1]["step"] == ended.crash["step"]
    assert all(json.loads(line)["requests"] for line in (ended.folder / evidence["plan"]).read_text().splitlines())


def assert_died_of_the_missing_clamp(ended: Soak) -> None:
    """The first step that needed the clamp was the last step, and all that was recorded says so."""
    report, crash, last = ended.report, ended.crash, ended.steps[-1]
    assert (ended.exit_code, report["verdict"], report["measures"]["crashes"]) == (1, "fail", 1), ended.output
    assert crash["kind"] == "oob_index", crash
    assert last["need"] == last["free"] > 0 and last["trailing"] > 0 and last["outcome"] == "raised", last
    assert report["measures"]["critical_steps"] == 1
    log = (ended.folder / "engine.log").read_text()
    assert "Traceback" in log and "alloc_decode" in log and "IndexError" in log
    assert_evidence_is_complete(ended)


# -- the edge, with the clamp


@pytest.fixture(scope="module")
def passed(tmp_path_factory: pytest.TempPathFactory) -> Soak:
    return soak(tmp_path_factory.mktemp("passed"), "--engine", WITH_CLAMP, "--duration", "12s", "--seed", "11")


def test_release_with_the_clamp_passes_with_most_steps_critical(passed: Soak) -> None:
    report = passed.report
    measures = report["measures"]
    print(f"critical share {measures['critical_share']:.1%} of {measures['decode_steps']} decode steps")
    assert (passed.exit_code, report["verdict"], report["status"]) == (0, "pass", "finished"), passed.output
    assert (measures["crashes"], measures["failed_requests"], report["crashes"]) == (0, 0, [])
    assert measures["critical_share"] >= 0.6
    assert measures["tight_not_critical_steps"] == measures["tight_steps"] - measures["critical_steps"]


def test_report_says_what_ran(passed: Soak) -> None:
    report = passed.report
    engine = report["engine"]
    assert (report["schema"], report["seed"], report["load"]["scenario"]) == (2, 11, "tight")
    assert (engine["name"], engine["sglang_version"], engine["allocator"]) == (WITH_CLAMP, WITH_CLAMP, "installed")
    assert engine["clamp"] is True and "--max-total-tokens" in engine["arguments"]
    times = {name: datetime.fromisoformat(at.replace("Z", "+00:00")) for name, at in report["times"].items()}
    assert times["created_at"] <= times["started_at"] < times["ready_at"] < times["finished_at"]
    spec = yaml.safe_load((passed.folder / "spec.yaml").read_text())
    assert (spec["engine"]["name"], spec["load"]["seed"]) == (WITH_CLAMP, 11)


def test_verdict_reason_and_folder_are_printed(passed: Soak) -> None:
    assert "PASS" in passed.output and str(passed.folder) in passed.output
    for name in ("report.json", "engine.log", "flight.bin", "spec.yaml"):
        assert name in passed.output and (passed.folder / name).stat().st_size > 0


def test_flight_prints_the_last_steps_of_the_recording(passed: Soak) -> None:
    recording = str(passed.folder / "flight.bin")
    printed = subprocess.run(
        [*LASTPAGE, "flight", recording, "-n", "200"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "CRITICAL" in printed and "decode steps: crossing" in printed
    assert f"SGLang {WITH_CLAMP}" in printed and "32 pages of 128" in printed


# -- the edge, without it


def test_untouched_release_without_the_clamp_fails_with_complete_evidence(crashed: Soak) -> None:
    assert_died_of_the_missing_clamp(crashed)
    assert crashed.report["engine"]["allocator"] == "installed" and crashed.report["engine"]["clamp"] is False
    assert "FAIL" in crashed.output and "oob_index" in crashed.output


def test_crash_comes_at_once_and_so_does_the_prompt(crashed: Soak) -> None:
    seconds_after_ready = crashed.crash["seconds_after_ready"]
    prompt_seconds = (crashed.ended_ns - crashed.steps[-1]["at_ns"]) / 1e9
    noticed_seconds = crashed.crash["noticed_after_seconds"]
    told = (seconds_after_ready, noticed_seconds, prompt_seconds)
    print("seconds from ready to crash, to its notice, and to the prompt: {:.2f}, {:.3f}, {:.1f}".format(*told))
    assert 0 < seconds_after_ready < CRASH_WITHIN_SECONDS
    assert 0 <= noticed_seconds < NOTICED_WITHIN_SECONDS
    assert prompt_seconds < PROMPT_WITHIN_SECONDS


def test_clamp_removed_from_the_new_release_crashes_as_the_old_one_does(tmp_path: Path) -> None:
    ended = soak(tmp_path, "--engine", WITH_CLAMP, "--allocator", "unpatched", "--duration", "60s")
    assert_died_of_the_missing_clamp(ended)
    assert ended.report["engine"]["clamp"] is True and ended.report["engine"]["allocator"] == "unpatched"


def test_clamp_put_into_the_old_release_survives(tmp_path: Path) -> None:
    ended = soak(tmp_path, "--engine", WITHOUT_CLAMP, "--allocator", "patched", "--duration", "8s")
    measures = ended.report["measures"]
    print(f"critical share {measures['critical_share']:.1%} of {measures['decode_steps']} decode steps")
    assert (ended.exit_code, ended.report["verdict"]) in [(0, "pass"), (3, "inconclusive")], ended.output
    assert measures["crashes"] == 0 and measures["critical_steps"] > 1


def test_load_that_leaves_slack_shows_nothing(tmp_path: Path) -> None:
    ended = soak(tmp_path, "--engine", WITH_CLAMP, "--scenario", "steady", "--duration", "8s")
    assert (ended.exit_code, ended.report["verdict"]) == (3, "inconclusive"), ended.output
    assert ended.report["measures"]["decode_steps"] > 0 and ended.report["measures"]["failed_requests"] == 0
    assert any("critical_steps" in reason for reason in ended.report["reasons"])


# -- an engine that is taken away


def test_killed_scheduler_is_noticed_and_classified(tmp_path: Path) -> None:
    with soaking(tmp_path, "--engine", WITH_CLAMP, "--duration", "60s") as running:
        os.kill(running.until_under_load(), signal.SIGKILL)
        killed_at = datetime.now(timezone.utc)
        ended = running.end(60)
    print(f"prompt {(datetime.now(timezone.utc) - killed_at).total_seconds():.1f} s after the scheduler was killed")
    assert (ended.exit_code, ended.report["verdict"], ended.crash["kind"]) == (1, "fail", "killed"), ended.output
    assert abs((_time(ended.crash["at"]) - killed_at).total_seconds()) < NOTICED_WITHIN_SECONDS
    assert_evidence_is_complete(ended)


def _time(text: Any) -> datetime:
    return datetime.fromisoformat(str(text).replace("Z", "+00:00"))
