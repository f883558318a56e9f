"""What a crash leaves to make it again, and to make it shorter, on the real releases."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.real.soaks import LASTPAGE, ROOT, Soak, soak

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

WITH_CLAMP, WITHOUT_CLAMP = "0.5.23", "0.5.18"
REGRESSIONS = sorted((ROOT / "tests" / "regressions").glob("*.yaml"))


def test_the_repro_of_a_crash_makes_it_again(crashed: Soak, tmp_path: Path) -> None:
    assert crashed.crash["evidence"]["repro"] == "repro.yaml"
    assert f"lastpage shrink {crashed.folder / 'repro.yaml'}" in crashed.output
    again = soak(tmp_path / "again", "-f", str(crashed.folder / "repro.yaml"))
    assert (again.exit_code, again.crash["kind"]) == (1, "oob_index"), again.output
    # The driver looks at the server every 10 ms, within which it makes a few steps.
    assert abs(again.crash["step"] - crashed.crash["step"]) < 200


def test_a_repro_comes_down_to_two_requests_that_crash_again(crashed: Soak, tmp_path: Path) -> None:
    shrunk = subprocess.run(
        [*LASTPAGE, "shrink", str(crashed.folder / "repro.yaml"), "--out", str(tmp_path / "out")],
        cwd=ROOT, capture_output=True, text=True, timeout=800,
    )  # fmt: skip
    print(shrunk.stdout)
    assert shrunk.returncode == 0, shrunk.stdout + shrunk.stderr
    (wave,) = yaml.safe_load((tmp_path / "out" / "shrunk.yaml").read_text())["load"]["options"]["waves"]
    assert len(wave["requests"].split()) == 2 and set(wave) == {"requests"}
    trials = [json.loads(line) for line in (tmp_path / "out" / "trials.jsonl").read_text().splitlines()]
    assert trials[-1]["crash"] == "oob_index" and trials[-1]["requests"] == 2
    assert sum(trial["boot_seconds"] is not None for trial in trials) < len(trials)


@pytest.mark.parametrize("file", REGRESSIONS, ids=lambda file: file.stem)
def test_a_regression_still_brings_down_the_release_without_the_clamp(file: Path, tmp_path: Path) -> None:
    ended = soak(tmp_path / "out", "-f", str(file), "--engine", WITHOUT_CLAMP)
    kind = yaml.safe_load(file.read_text())["labels"]["crash"]
    assert (ended.exit_code, ended.report["verdict"], ended.crash["kind"]) == (1, "fail", kind), ended.output
    assert ended.steps[-1]["need"] == ended.steps[-1]["free"] > 0 and ended.steps[-1]["trailing"] > 0


@pytest.mark.parametrize("file", REGRESSIONS, ids=lambda file: file.stem)
def test_the_release_with_the_clamp_survives_it_at_the_edge(file: Path, tmp_path: Path) -> None:
    """A pass says that a critical step took place: the file's threshold asks for it."""
    ended = soak(tmp_path / "out", "-f", str(file), "--engine", WITH_CLAMP)
    assert (ended.exit_code, ended.report["verdict"]) == (0, "pass"), ended.output
    assert ended.report["measures"]["critical_steps"] >= 1 and ended.report["crashes"] == []
    assert set(ended.report["measures"]["requests"]) == {"done"}
