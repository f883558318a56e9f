"""`lastpage soak` on a simulated engine, as a person runs it: exit codes, output, folder, and signals."""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from service.engine.process import procfs
from tests.engine.process.launches import wait_for
from tests.real.leftovers import MARK_VARIABLE, marked, token_of
from tests.real.soaks import LASTPAGE, ROOT, soak, soaking

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]

WARDEN_SECONDS = 20.0
REGRESSION = ROOT / "tests" / "regressions" / "two-requests-take-the-last-page.yaml"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LASTPAGE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LASTPAGE_SIMULATION", '{"time_scale": 20, "dying_seconds": 1}')


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A variable that every process started by a test inherits, engines included."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK_VARIABLE, mark)
    yield mark
    assert wait_for(lambda: not marked(mark), WARDEN_SECONDS), f"left behind: {marked(mark)}"


def test_a_pass_is_printed_with_the_word_simulated_and_its_recording_can_be_read(tmp_path: Path, mark: str) -> None:
    ended = soak(tmp_path / "out", "-f", str(REGRESSION), "--engine", "simulated")
    assert ended.exit_code == 0 and "PASS (simulated)" in ended.output, ended.output
    for name in ("report.json", "engine.log", "flight.bin", "spec.yaml"):
        assert name in ended.output and (ended.folder / name).stat().st_size > 0
    recording = str(ended.folder / "flight.bin")
    printed = subprocess.run(
        [*LASTPAGE, "flight", recording, "-n", "200"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "CRITICAL" in printed and "SGLang 0.5.23+simulated" in printed and "32 pages of 128" in printed


def test_rules_of_the_release_without_the_clamp_crash_and_the_repro_crashes_again(tmp_path: Path, mark: str) -> None:
    ended = soak(tmp_path / "out", "-f", str(REGRESSION), "--engine", "simulated-0.5.18")
    assert (ended.exit_code, ended.crash["kind"]) == (1, "oob_index"), ended.output
    assert "FAIL (simulated)" in ended.output
    assert yaml.safe_load((ended.folder / "repro.yaml").read_text())["engine"]["name"] == "simulated-0.5.18"
    again = soak(tmp_path / "again", "-f", str(ended.folder / "repro.yaml"))
    assert (again.exit_code, again.crash["kind"]) == (1, "oob_index"), again.output


def test_interrupt_stops_everything_and_leaves_a_report(tmp_path: Path, mark: str) -> None:
    with soaking(tmp_path / "out", "--engine", "simulated", "--duration", "10h") as running:
        running.until_under_load()
        running.process.send_signal(signal.SIGINT)
        ended = running.end(60)
    assert (ended.exit_code, ended.report["status"]) == (130, "interrupted"), ended.output
    assert ended.report["measures"]["decode_steps"] > 0 and ended.report["crashes"] == []


def test_killed_controller_takes_its_engine_along(tmp_path: Path, mark: str) -> None:
    out = tmp_path / "out"
    with soaking(out, "--engine", "simulated", "--duration", "10h") as running:
        token = token_of(running.until_under_load())
        assert procfs.token_holders(token)
        running.process.kill()
        running.process.wait()
        assert wait_for(lambda: not procfs.token_holders(token), WARDEN_SECONDS)
    assert not (out / "report.json").exists() and (out / "flight.bin").stat().st_size > 0


def test_simulated_engine_is_never_the_default_and_is_told_where_engines_are(tmp_path: Path) -> None:
    def lastpage(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*LASTPAGE, *words], cwd=ROOT, capture_output=True, text=True, env=dict(os.environ))

    added = lastpage("engine", "add", "flaky", "--simulated", "--release", "0.5.18", "--settings", '{"time_scale": 5}')
    assert added.returncode == 0 and "simulated" in added.stdout, added.stderr
    assert "0.5.18+simulated" in lastpage("engine", "list").stdout
    checked = lastpage("engine", "check", "flaky").stdout
    assert "simulated: there is no SGLang" in checked and "clamp        no" in checked
    refused = lastpage("soak", "--duration", "1s")
    assert refused.returncode == 2 and "none is installed" in refused.stderr
    bad = lastpage("engine", "add", "bad", "--simulated", "--settings", '{"time_scale": 0}')
    assert bad.returncode == 2 and "time_scale = 0" in bad.stderr
