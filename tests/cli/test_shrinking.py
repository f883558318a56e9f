"""Claims about `lastpage shrink`: what it refuses, what it says and its exit codes. The engine is the model."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

import service.cli.shrinking as command
from loadgen.sglang.pages import Pool
from loadgen.sglang.releases import rules_for
from loadgen.sglang.server import ServerConfiguration
from loadgen.shrink import Case
from service.cli.main import app
from service.errors import EngineError
from service.shrink.trials import Attempt
from service.spec.faults import Fault
from service.spec.yaml_text import load_yaml

from ..shrink.test_shrink_session import MODEL, REPRO, OnModel


class Engine(OnModel):
    """In the place of `EngineTrials`."""

    async def __aenter__(self) -> Engine:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.tried.clear()


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A 0.5.18 that is prepared."""
    monkeypatch.setenv("LASTPAGE_HOME", str(tmp_path / "home"))
    release = rules_for("0.5.18")
    server = ServerConfiguration(Pool(128, 32), chunked_prefill_size=8192, rules=release.rules)
    prepared = SimpleNamespace(check=SimpleNamespace(version="0.5.18"), release=release, server=server)
    monkeypatch.setattr(command, "prepare", lambda *_: (prepared, []))
    use(monkeypatch, Engine())


def use(monkeypatch: pytest.MonkeyPatch, trials: Engine) -> None:
    monkeypatch.setattr(command, "EngineTrials", lambda *_: trials)


def shrink(tmp_path: Path, *arguments: str, spec: dict[str, Any] | None = None) -> Result:
    file = tmp_path / "repro.yaml"
    file.write_text(yaml.safe_dump(spec or REPRO))
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["shrink", str(file), *arguments])


def test_a_repro_is_shrunk_and_the_way_to_it_is_told(tmp_path: Path) -> None:
    result = shrink(tmp_path, "--out", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    assert "to shrink: 20 requests in 3 waves" in result.output and "crash oob_index" in result.output
    assert "the model of the scheduler foresees a critical step with 2 requests in 1 wave" in result.output
    assert "trial 1   CRASHES   2 requests in 1 wave" in result.output and "engine booted in 30 s" in result.output
    assert "result   2 requests in 1 wave, 31 pages of prompt, 4 tokens of answer, from 20 requests" in result.output
    assert "\n         3840+2 1+2\n" in result.output
    assert f"again    lastpage soak -f {tmp_path / 'out' / 'shrunk.yaml'}" in result.output
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["shrunk.yaml", "spec.yaml", "trials.jsonl"]


def test_without_out_its_files_are_below_the_home(tmp_path: Path) -> None:
    assert shrink(tmp_path).exit_code == 0
    (folder,) = (tmp_path / "home" / "runs").iterdir()
    assert folder.name.endswith("-shrink") and (folder / "shrunk.yaml").exists()


def test_a_repro_that_does_not_crash_exits_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Engine(lambda _: False))
    result = shrink(tmp_path)
    assert result.exit_code == 3 and "result   it does not crash as oob_index" in result.output


def test_a_result_that_does_not_crash_once_more_exits_1_and_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed: list[Case] = []

    def only_once(case: Case) -> bool:
        crashed.append(case)
        return crashed.count(case) == 1 and MODEL.foresees(case)

    use(monkeypatch, Engine(only_once))
    result = shrink(tmp_path, "--out", str(tmp_path / "out"))
    assert result.exit_code == 1 and "DID NOT CRASH ONCE MORE" in result.output
    assert (tmp_path / "out" / "shrunk.yaml").exists()


def test_an_engine_that_does_not_start_exits_4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class NotStarting(Engine):
        async def attempt(self, case: Case) -> Attempt:
            raise EngineError("not ready within 300 s")

    use(monkeypatch, NotStarting())
    result = shrink(tmp_path)
    assert result.exit_code == 4 and "not ready within 300 s" in result.output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_the_best_so_far_and_exits_130(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    class Interrupted(Engine):
        async def attempt(self, case: Case) -> Attempt:
            if len(self.tried) == 3:
                os.kill(os.getpid(), number)
                await command.anyio.sleep_forever()
            return await super().attempt(case)

    use(monkeypatch, Interrupted())
    result = shrink(tmp_path, "--out", str(tmp_path / "out"))
    assert result.exit_code == 130, result.output
    assert "Interrupted" in result.output and "result   2 requests in 1 wave" in result.output
    assert (tmp_path / "out" / "shrunk.yaml").exists()


def test_what_is_no_repro_is_refused_with_exit_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = shrink(tmp_path, spec={"load": {"scenario": "tight"}})
    assert result.exit_code == 2 and "load.scenario = 'tight'" in result.output and "repro.yaml" in result.output
    result = shrink(tmp_path, spec={**REPRO, "labels": {"finding": "starved"}})
    assert result.exit_code == 2 and "labels.finding = 'starved': only crashes are shrunk" in result.output
    result = shrink(tmp_path, spec={**REPRO, "labels": {"crash": "index_out_of_range"}})
    assert result.exit_code == 2 and "labels.crash = 'index_out_of_range': no such kind of crash" in result.output
    result = CliRunner().invoke(app, ["shrink", str(tmp_path / "nothing.yaml")])
    assert result.exit_code == 2 and "there is no such file" in result.output
    fault = Fault(field="engine.name", value="0.5.17", message="no such engine")
    monkeypatch.setattr(command, "prepare", lambda *_: (None, [fault]))
    result = shrink(tmp_path)
    assert result.exit_code == 2 and "engine.name = '0.5.17': no such engine" in result.output


@pytest.mark.parametrize("special", ["pipe", "/dev/zero"])
def test_a_repro_comes_from_a_regular_file(tmp_path: Path, special: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    result = CliRunner().invoke(app, ["shrink", str(tmp_path / special)])
    assert result.exit_code == 2 and "not a regular file" in result.output


@pytest.mark.parametrize("budget", ["soon", "0", "-5s", "inf", "nan"])
def test_a_budget_that_is_none_is_refused(tmp_path: Path, budget: str) -> None:
    result = shrink(tmp_path, f"--budget={budget}")
    assert result.exit_code == 2 and "--budget" in result.output


def test_the_folder_of_an_earlier_shrinking_is_refused(tmp_path: Path) -> None:
    assert shrink(tmp_path, "--out", str(tmp_path / "out")).exit_code == 0
    result = shrink(tmp_path, "--out", str(tmp_path / "out"))
    assert result.exit_code == 2 and "shrunk.yaml, trials.jsonl of an earlier shrinking" in result.output
    assert shrink(tmp_path, "--out", str(tmp_path / "repro.yaml")).exit_code == 2


def test_the_folder_of_a_run_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "spec.yaml").write_text("name: a run\n")
    result = shrink(tmp_path, "--out", str(run))
    assert result.exit_code == 2 and "spec.yaml of an earlier run there" in result.output
    assert {path.name: path.read_text() for path in run.iterdir()} == {"spec.yaml": "name: a run\n"}


def test_the_waves_of_the_result_are_told_with_when_they_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the engine crashes of the first wave and the last, when steps lie between them."""

    def crashes(case: Case) -> bool:
        numbers = {request.number for request in case.requests}
        return {1, 18} <= numbers and any(wave.after_steps for wave in case.waves)

    use(monkeypatch, Engine(crashes))
    result = shrink(tmp_path, "--out", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    written = load_yaml(tmp_path / "out" / "shrunk.yaml")["load"]["options"]["waves"][-1]
    assert f"\n         after_steps {written['after_steps']}: {written['requests']}\n" in result.output


def test_more_waves_than_are_shown_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waves = [{"requests": "10+2"}, *({"idle": True, "requests": "10+2"} for _ in range(6))]
    use(monkeypatch, Engine(lambda case: len(case.waves) == 7 and all(wave.idle for wave in case.waves[1:])))
    result = shrink(tmp_path, spec={**REPRO, "load": {"scenario": "waves", "options": {"waves": waves}}})
    assert result.exit_code == 0, result.output
    assert result.output.count("\n         idle: ") == 4 and "\n         ... and 2 waves more\n" in result.output


def test_one_boot_is_told_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Engine(lambda _: False))
    assert " trials, 1 boot, " in shrink(tmp_path).output
