"""Claims about one shrinking: what counts as the same crash, what is kept, and how it ends. The engine is the model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loadgen.scenarios.waves.scenario import WavesOptions
from loadgen.shrink import Case
from loadgen.shrink.on_model import ServerModel
from service.engine.crash.signatures import CrashKind
from service.shrink.shrink_session import End, ShrinkSession
from service.shrink.trials import Attempt
from service.spec.parsing import parse_spec
from service.spec.spec import RunSpec
from service.spec.yaml_text import load_yaml
from tests.fake_executor import CRASH

from ..loadgen.releases import OLD

pytestmark = pytest.mark.anyio

MODEL = ServerModel(True, OLD, 8192)
REPRO: dict[str, Any] = {
    "name": "repro of a run",
    "labels": {"crash": "oob_index", "repro_of": "a run"},
    "engine": {"name": "0.5.18"},
    "load": {
        "scenario": "waves",
        "seed": 1,
        "options": {
            "made_by": "tight",
            "waves": [
                {"requests": " ".join(f"{106 - place}+{24 + place}" for place in range(1, 16))},
                {"after_steps": 1, "requests": "2004+46"},
                {"after_steps": 2, "requests": "114+16 114+16 114+16 113+17"},
            ],
        },
    },
    "thresholds": ["critical_steps >= 1"],
}


class OnModel:
    """Trials on the model: an engine that dies of its first critical step, and is booted anew when it has."""

    def __init__(self, crashes: Callable[[Case], bool] = MODEL.foresees, kind: CrashKind = CrashKind.OOB_INDEX) -> None:
        self.tried: list[Case] = []
        self._crashes = crashes
        self._crash = CRASH.model_copy(update={"kind": kind})
        self._alive = False

    async def attempt(self, case: Case) -> Attempt:
        self.tried.append(case)
        booted = None if self._alive else 30.0
        self._alive = not self._crashes(case)
        return Attempt(None if self._alive else self._crash, 9, 0.1, booted)


def session(trials: OnModel, folder: Path, **more: Any) -> tuple[ShrinkSession, list[str]]:
    told: list[str] = []
    spec = parse_spec({**REPRO, **more.pop("spec", {})})
    given = {"budget_seconds": 900.0, "model": MODEL, **more}
    return ShrinkSession(spec, trials, folder, told.append, **given), told


def shrunk(folder: Path) -> RunSpec:
    return parse_spec(load_yaml(folder / "shrunk.yaml"))


def requests(spec: RunSpec) -> list[str]:
    return [wave.requests for wave in WavesOptions.model_validate(spec.load.options).waves]


async def test_two_boots_do_where_the_model_is_right(tmp_path: Path) -> None:
    trials = OnModel()
    shrinking, told = session(trials, tmp_path)
    assert await shrinking.run() is End.CONFIRMED
    assert requests(shrunk(tmp_path)) == ["3840+2 1+2"]
    assert shrinking.boots == 2, "the original is spared, and one engine serves all trials that do not crash"
    assert trials.tried[0] == trials.tried[-1] == shrinking.best and len(trials.tried) == shrinking.trials < 40
    assert sum("trial" in line for line in told) == shrinking.trials


async def test_without_a_model_the_engine_alone_leads_there(tmp_path: Path) -> None:
    shrinking, told = session(OnModel(), tmp_path, model=None)
    assert await shrinking.run() is End.CONFIRMED
    assert shrinking.best is not None and shrinking.best.size.requests == 2
    assert shrinking.best.size.waves == 1 and shrinking.best.size.answer_tokens < 20
    assert "CRASHES" in told[1] and "as it is" in told[1]


async def test_a_model_that_is_wrong_does_not_decide(tmp_path: Path) -> None:
    """Here only a request of the last wave matters, whatever the model says of the pool."""

    def crashes(case: Case) -> bool:
        return any(request.number == 18 for request in case.requests)

    shrinking, _ = session(OnModel(crashes), tmp_path)
    assert await shrinking.run() is End.CONFIRMED
    assert [request.number for request in shrinking.best.requests] == [18] if shrinking.best else False


async def test_the_result_is_the_repro_with_a_shorter_load(tmp_path: Path) -> None:
    shrinking, _ = session(OnModel(), tmp_path)
    await shrinking.run()
    spec, repro = shrunk(tmp_path), parse_spec(REPRO)
    assert (spec.engine, spec.thresholds, spec.load.seed) == (repro.engine, repro.thresholds, 1)
    assert (spec.name, spec.labels) == ("shrunk repro of a run", repro.labels)
    assert spec.load.options["made_by"] == "tight"


async def test_the_result_of_a_load_that_was_written_by_hand_can_pass_where_the_fault_is_mended(tmp_path: Path) -> None:
    spec = {"thresholds": None, "load": {**REPRO["load"], "until_coverage": 0.5}}
    shrinking, _ = session(OnModel(), tmp_path, spec=spec)
    await shrinking.run()
    bounds = [bound for bound in shrunk(tmp_path).thresholds if bound.startswith(("critical_steps", "coverage"))]
    assert bounds == ["critical_steps >= 1"]


async def test_what_does_not_crash_is_told_after_its_trial_and_leaves_no_result(tmp_path: Path) -> None:
    trials = OnModel(lambda _: False)
    shrinking, told = session(trials, tmp_path)
    assert await shrinking.run() is End.NO_CRASH
    assert shrinking.original in trials.tried and shrinking.best is None
    assert "survives" in told[-1] and not (tmp_path / "shrunk.yaml").exists()


async def test_another_kind_of_crash_is_not_the_crash(tmp_path: Path) -> None:
    shrinking, told = session(OnModel(kind=CrashKind.POOL_LEAK), tmp_path)
    assert await shrinking.run() is End.NO_CRASH
    assert "crashes otherwise (pool_leak)" in told[-1]


async def test_without_a_label_the_first_crash_says_what_to_look_for(tmp_path: Path) -> None:
    trials = OnModel(kind=CrashKind.HANG)
    shrinking, _ = session(trials, tmp_path, spec={"labels": {}})
    assert await shrinking.run() is End.CONFIRMED
    assert trials.tried[0] == shrinking.original and trials.tried.count(shrinking.original) == 1
    assert shrunk(tmp_path).labels == {"crash": "hang"} and shrinking.boots == 3


async def test_a_crash_that_does_not_come_again_is_told(tmp_path: Path) -> None:
    crashed: set[Case] = set()

    def only_once(case: Case) -> bool:
        new = case not in crashed
        crashed.add(case)
        return new and MODEL.foresees(case)

    trials = OnModel(only_once)
    shrinking, _ = session(trials, tmp_path)
    assert await shrinking.run() is End.FLAKY
    assert trials.tried.count(trials.tried[-1]) == 4 and requests(shrunk(tmp_path)) == ["3840+2 1+2"]


async def test_the_budget_ends_it_with_the_best_so_far_confirmed(tmp_path: Path) -> None:
    trials = OnModel()
    shrinking, told = session(trials, tmp_path, model=None, clock=lambda: 100.0 * len(trials.tried))
    assert await shrinking.run() is End.CONFIRMED
    assert len(trials.tried) == 10 and any("budget" in line for line in told)
    assert shrinking.best is not None and shrinking.best.size < shrinking.original.size


async def test_whatever_ends_it_the_best_so_far_and_every_trial_are_on_disk(tmp_path: Path) -> None:
    trials = OnModel()

    def until_the_sixth(case: Case) -> bool:
        if len(trials.tried) == 6:
            raise OSError("no space left on device")
        return MODEL.foresees(case)

    trials._crashes = until_the_sixth
    shrinking, _ = session(trials, tmp_path, model=None)
    with pytest.raises(OSError, match="no space"):
        await shrinking.run()
    assert shrinking.best is not None and shrinking.best.size < shrinking.original.size
    assert requests(shrunk(tmp_path)) == [wave.requests for wave in shrinking.best.written()]
    lines = [json.loads(line) for line in (tmp_path / "trials.jsonl").read_text().splitlines()]
    assert [line["trial"] for line in lines] == [1, 2, 3, 4, 5]
    assert lines[0]["move"] == "as it is" and lines[0]["crash"] == "oob_index" and lines[0]["boot_seconds"] == 30.0
