"""Installing, with a stand-in for pip that writes down what it was asked for."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from service.engine.install import install as install_module
from service.engine.install.environment import Report
from service.engine.install.install import ensure, install
from service.engine.install.pip import Candidate
from service.engine.registry import EngineRegistry
from service.errors import EngineNameRefused, EngineNotFound, InstallFailed
from service.home import Home

asked: list[tuple[str, ...]] = []
failing: list[str] = []


class StandInPip:
    """Installs nothing. `failing` holds what it fails on."""

    markers: dict[str, str] = {"python_version": "3.11"}  # noqa: RUF012

    def __init__(self, python: Path, log: Path, report: Report) -> None:
        self.log = log

    def install(self, *arguments: str) -> None:
        asked.append(arguments)
        if set(arguments) & set(failing):
            raise InstallFailed(f"pip install ended with code 1. The end of {self.log}:\n    no space left")

    def choose(self, requirements: Sequence[Requirement]) -> list[Candidate]:
        return [Candidate(one.name, str(one.specifier).removeprefix("=="), ("torch==0.1",)) for one in requirements]


def create(command: Sequence[str], log: Path, report: Report) -> None:
    """Stands in for `python -m venv`: a real one takes seconds for pip alone."""
    folder = Path(command[-1])
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / "lib" / "python3.11" / "site-packages").mkdir(parents=True)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    asked.clear()
    failing.clear()
    monkeypatch.setattr(install_module, "Pip", StandInPip)
    monkeypatch.setattr(install_module, "run_logged", create)
    monkeypatch.setattr(install_module, "ROOM_BYTES", 0)
    return Home(tmp_path / "home")


def installs() -> list[tuple[str, ...]]:
    """What was asked for, apart from a newer pip."""
    return [arguments for arguments in asked if arguments != ("--upgrade", "pip")]


def test_first_release_is_installed_with_all_that_it_pins(home: Home) -> None:
    engine = install(home, "0.5.23")
    assert (engine.name, engine.version, engine.origin, engine.base) == ("0.5.23", "0.5.23", "installed", None)
    assert engine.folder.parent == home.environments
    assert EngineRegistry(home).get("0.5.23") == engine
    assert installs() == [("sglang==0.5.23",)]


def test_second_call_finds_it_at_once(home: Home) -> None:
    install(home, "0.5.23")
    asked.clear()
    started = time.monotonic()
    install(home, "0.5.23")
    assert time.monotonic() - started < 0.5
    assert asked == []


def test_second_release_shares_the_first_ones_packages_and_says_so(home: Home) -> None:
    install(home, "0.5.23")
    asked.clear()
    said: list[str] = []
    engine = install(home, "0.5.18", report=said.append)
    assert engine.base == "0.5.23"
    assert installs() == [("--no-deps", "sglang==0.5.18")]
    assert "sharing the packages of 0.5.23" in said[0]
    assert any(line.startswith("accelerator packages left") and "torch==0.1" in line for line in said)
    assert list(engine.folder.glob("lib/python*/site-packages/lastpage-shared.pth"))


def test_third_release_shares_with_one_that_stands_on_its_own_feet(home: Home) -> None:
    install(home, "0.5.18")
    install(home, "0.5.23")
    assert install(home, "0.5.22").base == "0.5.18"


def test_no_share_installs_everything(home: Home) -> None:
    install(home, "0.5.23")
    shared = install(home, "0.5.18")
    alone = install(home, "0.5.18", shared=False)
    assert (shared.base, alone.base) == ("0.5.23", None)
    assert shared.python != alone.python
    assert EngineRegistry(home).get("0.5.18") == alone


def test_failure_registers_nothing_and_the_next_call_starts_over(home: Home) -> None:
    failing.append("sglang==0.5.23")
    with pytest.raises(InstallFailed, match="no space left"):
        install(home, "0.5.23")
    assert EngineRegistry(home).list() == []
    assert not [path for path in home.environments.iterdir() if path.is_dir()]
    failing.clear()
    assert install(home, "0.5.23").python.exists()


def test_too_little_room_is_refused_before_anything_is_fetched(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install_module, "ROOM_BYTES", 10**18)
    with pytest.raises(InstallFailed, match="GB free"):
        install(home, "0.5.23")
    assert asked == []


@pytest.mark.parametrize("version", ["", "latest", "0.5.23; rm -rf /", "--index-url=x", "../0.5.23"])
def test_version_that_is_no_release_number_is_refused(home: Home, version: str) -> None:
    with pytest.raises(InstallFailed, match="is not a release number"):
        install(home, version)


def test_base_that_is_not_there_or_shares_itself_is_refused(home: Home) -> None:
    install(home, "0.5.23")
    install(home, "0.5.18")
    with pytest.raises(EngineNotFound, match=r"Known engines: 0\.5\.18, 0\.5\.23"):
        install(home, "0.5.22", base="0.5.21")
    with pytest.raises(InstallFailed, match=r"use '0\.5\.23'"):
        install(home, "0.5.22", base="0.5.18")


def test_base_whose_interpreter_does_not_answer_is_named(home: Home) -> None:
    EngineRegistry(home).add("mine", Path("/bin/false"))
    with pytest.raises(InstallFailed, match="the interpreter of 'mine', /bin/false"):
        install(home, "0.5.18", base="mine")


def test_added_engine_can_be_the_base(home: Home) -> None:
    EngineRegistry(home).add("mine", Path(sys.executable))
    assert install(home, "0.5.18", base="mine").base == "mine"


def test_added_engine_is_not_overwritten_by_a_release_of_its_name(home: Home) -> None:
    EngineRegistry(home).add("0.5.23", Path(sys.executable))
    with pytest.raises(EngineNameRefused, match="added engine"):
        install(home, "0.5.23")


def test_without_an_npu_ensure_installs_the_release(home: Home) -> None:
    assert ensure(home, "0.5.23") == install(home, "0.5.23")
