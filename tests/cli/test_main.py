"""Claims about the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml
from typer.testing import CliRunner, Result

import service.controller
from service.cli.main import app
from service.plugin.recorder import FlightRecorder
from service.runs.model import RunStatus
from service.spec.faults import Fault
from tests.fake_executor import AT_THE_EDGE, CRASH, FakeExecutor

pytestmark = [pytest.mark.timeout(60), pytest.mark.processes]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LASTPAGE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> FakeExecutor:
    return use(monkeypatch, FakeExecutor())


def use(monkeypatch: pytest.MonkeyPatch, executor: FakeExecutor) -> FakeExecutor:
    monkeypatch.setattr(service.controller, "_supervisor", lambda _: executor)
    return executor


def run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, list(arguments))


def report(folder: Path) -> dict[str, object]:
    loaded: dict[str, object] = json.loads((folder / "report.json").read_text())
    return loaded


def test_a_soak_that_passes_exits_0_with_its_report(executor: FakeExecutor, tmp_path: Path) -> None:
    result = run("soak", "--out", str(tmp_path / "out"), "--seed", "7")
    assert result.exit_code == 0, result.output
    assert "verdict  PASS" in result.output
    assert f"folder   {tmp_path / 'out'}" in result.output
    assert "under load: tight on fake (SGLang 0.5.23, rehearsal)" in result.output
    assert (report(tmp_path / "out")["verdict"], report(tmp_path / "out")["seed"]) == ("pass", 7)


def test_a_soak_without_out_puts_its_files_below_the_home(executor: FakeExecutor, home: Path) -> None:
    assert run("soak").exit_code == 0
    (folder,) = (home / "runs").iterdir()
    assert report(folder)["id"] == folder.name


@pytest.mark.parametrize(
    ("fake", "code", "said"),
    [
        (FakeExecutor(crash=CRASH), 1, "oob_index"),
        (FakeExecutor(measures=AT_THE_EDGE.model_copy(update={"critical_steps": 3})), 3, "INCONCLUSIVE"),
        (FakeExecutor(starts=False), 4, "no module named sglang"),
    ],
)
def test_the_exit_code_tells_how_a_run_ended(
    fake: FakeExecutor, code: int, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(monkeypatch, fake)
    result = run("soak", "--out", str(tmp_path))
    assert result.exit_code == code
    assert said in result.output
    assert report(tmp_path)["status"] == ("failed_to_start" if code == 4 else "finished")


def test_a_folder_that_holds_an_earlier_run_is_refused_and_left_as_it_is(
    executor: FakeExecutor, tmp_path: Path
) -> None:
    assert run("soak", "--out", str(tmp_path)).exit_code == 0, "an empty one"
    before = report(tmp_path)
    result = run("soak", "--out", str(tmp_path))
    assert result.exit_code == 2
    assert f"out = '{tmp_path}': report.json, spec.yaml of an earlier run there; choose another" in result.output
    assert (report(tmp_path), len(executor.executed)) == (before, 1)


def test_a_folder_with_other_files_is_refused(executor: FakeExecutor, tmp_path: Path) -> None:
    for name in ("a.md", "b.md", "c.md", "d.md"):
        (tmp_path / name).touch()
    result = run("soak", "--out", str(tmp_path))
    assert (result.exit_code, executor.executed) == (2, [])
    assert f"out = '{tmp_path}': it is not empty (a.md, b.md, c.md, ...); allowed: a new folder, or" in result.output


@pytest.mark.parametrize(("scenario", "told"), [("tight", True), ("mixed", False)])
def test_coverage_asked_of_a_scenario_that_does_not_aim_is_told_before_the_start(
    executor: FakeExecutor, tmp_path: Path, scenario: str, told: bool
) -> None:
    result = run("soak", "--until-coverage", "90%", "--scenario", scenario, "--out", str(tmp_path / "out"))
    said = "may never cover 90% of them; mixed and prefix do"
    before = result.output.partition("launching the engine")[0]
    assert (said in before) == (said in result.output) == told


def test_unknown_keys_bad_values_and_bad_options_are_told_at_once(executor: FakeExecutor, tmp_path: Path) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text(
        "nmae: x\nengine: {page_size: big}\nload: {scenario: tight, options: {queue: 1, needs: '1,2'}}\n"
        "thresholds: [nonsense, more nonsense]\n"
    )
    result = run("soak", "-f", str(file))
    assert result.exit_code == 2
    for said in (
        "nmae = 'x': unknown field",
        "engine.page_size = 'big'",
        "'nonsense' is no threshold",
        "'more nonsense' is no threshold",
        "load.options.queue = 1",
        "load.options.needs = '1,2': not a list; write one, as in [1,2]",
    ):
        assert said in result.output


def test_flags_and_file_make_one_spec_and_flags_win(executor: FakeExecutor, tmp_path: Path) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text("engine: {pool_pages: 64, args: [--tp, 1]}\nload:\nthresholds: [critical_share >= 50%]\n")
    arguments = ["-f", str(file), "--pool-pages", "256", "--allocator", "patched", "--duration", "2m"]
    arguments += ["--min-critical", "5", "--option", "waves=3", "--engine-arg", "--disable-overlap-schedule"]
    result = run("soak", *arguments, "--out", str(tmp_path / "out"), "--", "--log-level", "debug")
    assert result.exit_code == 0, result.output
    spec = yaml.safe_load((tmp_path / "out" / "spec.yaml").read_text())
    assert spec["engine"]["pool_pages"] == 256
    assert spec["engine"]["allocator"] == "patched"
    assert spec["engine"]["args"] == ["--tp", "1", "--disable-overlap-schedule", "--log-level", "debug"]
    assert spec["load"] == {**spec["load"], "duration": 120.0, "options": {"waves": 3}}
    assert set(spec["thresholds"]) == {
        "crashes == 0",
        "failed_requests == 0",
        "findings == 0",
        "critical_share >= 0.5",
        "critical_steps >= 5",
    }


def test_a_run_that_does_not_cover_what_was_asked_for_is_inconclusive(executor: FakeExecutor, tmp_path: Path) -> None:
    result = run("soak", "--until-coverage", "90%", "--out", str(tmp_path))
    assert result.exit_code == 3
    assert "coverage.share was not measured, expected >= 0.9" in result.output
    assert report(tmp_path)["load"]["until_coverage"] == 0.9


def test_the_last_of_two_thresholds_on_critical_steps_does_not_hide_the_first(
    executor: FakeExecutor, tmp_path: Path
) -> None:
    result = run("soak", "--threshold", "critical_steps >= 5000", "--min-critical", "5", "--out", str(tmp_path))
    assert result.exit_code == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--page-size", "1"], "--page-size"),
        (["--allocator", "magic"], "installed"),
        (
            ["--until-coverage", "all"],
            "load.until_coverage = 'all': not a share; allowed: a number above 0 and up to 1",
        ),
        (["--duration", "soon"], "load.duration = 'soon': not a duration"),
        (["--threshold", "crashes < many"], "is no threshold"),
        (["--threshold", "critical_steps >= 0"], "lower bound above 0"),
        (["--option", "waves"], "KEY=VALUE"),
        (["-f", "/nowhere/spec.yaml"], "file = '/nowhere/spec.yaml': there is no such file"),
        (["-f", "a.yaml", "-f", "b.yaml"], "only one spec file"),
        (["tight"], "unexpected 'tight'"),
        (["--colour", "red"], "No such option"),
        (["--seed", "-1"], "--seed"),
        (["--out", "/proc/nowhere/out"], "out = '/proc/nowhere/out'"),
        (["--out", ""], "it is empty"),
        (["--out", __file__], "is a file"),
        (["--option", "queue=2026-02-30"], "KEY=VALUE"),
    ],
)
def test_bad_input_exits_2_and_says_what_is_allowed(
    executor: FakeExecutor, arguments: list[str], said: str, home: Path
) -> None:
    result = run("soak", *arguments)
    assert result.exit_code == 2
    assert said in result.output
    assert executor.executed == []
    assert not home.exists()


def test_a_home_that_is_nowhere_exits_2() -> None:
    environment = {**os.environ, "LASTPAGE_HOME": "~no such user/x"}
    command = [sys.executable, "-m", "service.cli.main", "soak"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "LASTPAGE_HOME = '~no such user/x'" in ended.stderr


def test_a_fault_found_in_preflight_exits_2_and_leaves_nothing(executor: FakeExecutor, home: Path) -> None:
    executor.faults = [Fault(field="engine.name", value=None, message="not known. Known engines: 0.5.23")]
    result = run("soak")
    assert result.exit_code == 2
    assert "engine.name: not known. Known engines: 0.5.23" in result.output
    assert not home.exists()


def test_a_recording_is_printed_and_what_is_none_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "flight.bin"
    recorder = FlightRecorder(file, page_size=128, pool_pages=32, sglang_version="0.5.23", allocator="installed")
    recorder.enter(8, 1, 1, 6)
    result = run("flight", str(file))
    assert (result.exit_code, "CRITICAL" in result.output) == (0, True)
    file.write_bytes(b"x" * 5000)
    os.mkfifo(pipe := tmp_path / "pipe")
    refused = {
        file: "not a flight recording",
        tmp_path / "none": "No such file",
        tmp_path: "directory",
        pipe: "regular",
    }
    for path, said in refused.items():
        result = run("flight", str(path))
        assert result.exit_code == 2
        assert said in result.output


def test_engines_are_added_listed_and_removed(tmp_path: Path) -> None:
    assert "No engine yet" in run("engine", "list").output
    python = tmp_path / "python"
    assert run("engine", "add", "mine", "--python", str(python)).exit_code == 2
    python.touch(mode=0o755)
    refused = run("engine", "add", "mine", "--python", str(python))
    assert refused.exit_code == 2
    assert "no run can be made on it: " in refused.output and "--no-check registers it all the same" in refused.output
    assert "No engine yet" in run("engine", "list").output
    assert run("engine", "add", "mine", "--python", str(python), "--no-check").exit_code == 0
    assert str(python) in run("engine", "list").output
    assert run("engine", "remove", "mine").exit_code == 0
    result = run("engine", "remove", "mine")
    assert result.exit_code == 2
    assert "'mine' is not known" in result.output
    assert run("engine", "check", "mine").exit_code == 2


def test_scenarios_are_listed() -> None:
    result = run("scenarios")
    assert result.exit_code == 0
    assert "tight" in result.output and "steady" in result.output
    assert "fixed point" not in result.output


def test_one_scenario_is_shown_with_its_mechanism() -> None:
    result = run("scenarios", "mixed")
    assert result.exit_code == 0
    assert "takes in all requests of one POST before it schedules the first" in result.output
    assert "staggered (default 10)  Rows that cross one after the other" in result.output
    unknown = run("scenarios", "mixd")
    assert unknown.exit_code == 2
    assert "scenario = 'mixd': no such scenario; allowed: tight, mixed" in unknown.output


def test_the_version_is_told_both_ways() -> None:
    assert run("--version").output == run("version").output != ""


def test_help_needs_neither_the_api_nor_the_engines() -> None:
    code = "import sys, service.cli.main; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"fastapi", "httpx", "yaml", "pydantic", "anyio", "uvicorn"} & set(loaded)


@contextmanager
def started(hold_at: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.cli.fake_cli", hold_at, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(process: subprocess.Popen[str], text: str) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return line
    raise AssertionError(f"{text!r} never came")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("hold_at", ["launching", "running"])
def test_a_signal_interrupts_the_run_which_is_reported_and_exits_130(
    number: signal.Signals, hold_at: str, tmp_path: Path
) -> None:
    with started(hold_at, "soak", "--out", str(tmp_path)) as process:
        read_until(process, "launching the engine" if hold_at == "launching" else "under load")
        process.send_signal(number)
        output, _ = process.communicate(timeout=20)
        assert process.returncode == 130, output
    assert "interrupted" in output
    assert report(tmp_path)["status"] == "interrupted"


def test_a_reader_that_leaves_does_not_end_the_run(tmp_path: Path) -> None:
    with started("none", "soak", "--out", str(tmp_path)) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(timeout=20) == 0
    assert report(tmp_path)["verdict"] == "pass"


def test_serve_answers_and_stops_in_order_on_a_signal(home: Path) -> None:
    with started("running", "serve", "--port", "0") as process:
        address = read_until(process, "http://").split("http://")[1].split()[0]
        run_id = httpx.post(f"http://{address}/v1/runs", json={}).json()["id"]
        assert httpx.get(f"http://{address}/v1/runs/{run_id}").json()["status"] in list(RunStatus)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=20)
        assert process.returncode == 0, output
    assert report(home / "runs" / run_id)["status"] == "interrupted"


def test_a_port_that_is_taken_is_refused() -> None:
    with started("none", "serve", "--port", "0") as process:
        port = read_until(process, "http://").split("http://")[1].split()[0].rsplit(":", 1)[1]
        result = run("serve", "--port", port)
        assert result.exit_code == 2
        assert f"port = {port}" in result.output
