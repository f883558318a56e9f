from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from service.engine.check import check
from service.engine.installation import Engine
from service.home import Home
from service.plugin.settings import Profile
from tests.engine.interpreters import answering, calls, script
from tests.engine.process.launches import alive, wait_for


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def engine(python: Path) -> Engine:
    return Engine(name="mine", python=python, origin="added")


def test_answer_is_told_field_by_field(home: Home, tmp_path: Path) -> None:
    npu = {"torch_npu": "2.8.0", "available": True, "count": 8, "name": "Ascend910B3", "problem": None}
    found = check(engine(answering(tmp_path / "python", clamp=False, npu=npu)), home=home)
    assert (found.version, found.torch, found.clamp, found.problem) == ("0.5.23", "2.14.1", False, None)
    assert (found.npu.available, found.npu.count, found.npu.name) == (True, 8, "Ascend910B3")


@pytest.mark.parametrize(("available", "profile"), [(True, Profile.ASCEND), (False, Profile.REHEARSAL)])
def test_profile_follows_the_npu(home: Home, tmp_path: Path, available: bool, profile: Profile) -> None:
    python = answering(tmp_path / "python", npu={"torch_npu": "2.8.0", "available": available})
    assert check(engine(python), home=home).profile is profile


def test_missing_sglang_is_named_with_its_interpreter(home: Home) -> None:
    found = check(engine(Path(sys.executable)), home=home)
    assert found.problem is not None
    assert "there is no torch" in found.problem or "there is no sglang" in found.problem
    assert sys.executable in found.problem
    assert (found.clamp, found.npu.available) == (None, False)


def test_interpreter_that_is_not_there_is_named(home: Home, tmp_path: Path) -> None:
    found = check(engine(tmp_path / "gone"), home=home)
    assert found.problem == f"{tmp_path}/gone could not be started: No such file or directory"


def test_interpreter_that_breaks_is_told_with_its_last_words(home: Home, tmp_path: Path) -> None:
    found = check(engine(script(tmp_path / "python", "echo 'libcuda is broken' >&2; exit 3")), home=home)
    assert found.problem == f"{tmp_path}/python ended with code 3 and no answer: libcuda is broken"


def test_check_never_hangs_and_leaves_no_process(home: Home, tmp_path: Path) -> None:
    python = script(tmp_path / "python", f"sleep 300 & echo $! > {tmp_path}/child; sleep 300")
    started = time.monotonic()
    found = check(engine(python), home=home, deadline_seconds=0.5)
    assert time.monotonic() - started < 10
    assert found.problem == f"{python} gave no answer within 0.5 s"
    child = int((tmp_path / "child").read_text())
    assert wait_for(lambda: not alive(child))


def test_good_answer_is_kept_until_the_installation_changes(home: Home, tmp_path: Path) -> None:
    source = tmp_path / "allocator.py"
    source.touch()
    python = answering(tmp_path / "python", files=[str(source)])
    first = check(engine(python), home=home)
    assert check(engine(python), home=home) == first
    assert calls(python) == 1
    os.utime(source, (1, 1))
    check(engine(python), home=home)
    assert calls(python) == 2


@pytest.mark.parametrize("changes", [{"problem": "broken"}, {"npu": {"torch_npu": "2.8.0", "problem": "driver"}}])
def test_answer_with_a_problem_is_asked_for_again(home: Home, tmp_path: Path, changes: dict[str, object]) -> None:
    python = answering(tmp_path / "python", **changes)
    check(engine(python), home=home)
    check(engine(python), home=home)
    assert calls(python) == 2
