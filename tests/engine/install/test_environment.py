from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from service.engine.install.environment import Environment, Recipe, build_once, environment_for
from service.home import Home

RECIPE = Recipe("0.5.23", "/usr/bin/python3 cpython-311 linux-x86_64")


def build(environment: Environment, seconds: float = 0.0) -> None:
    """Stands in for pip: notes that it ran, takes its time, and finishes."""
    environment.python.parent.mkdir(parents=True)
    environment.python.touch()
    with (environment.folder.parent / "builds").open("a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(seconds)
    environment.seal({})


def builds(environment: Environment) -> int:
    return len((environment.folder.parent / "builds").read_text().splitlines())


def silent(_: str) -> None:
    pass


def build_slowly(folder: Path, seconds: float) -> None:
    build_once(Environment(folder), lambda environment: build(environment, seconds), silent)


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return environment_for(Home(tmp_path), RECIPE)


@pytest.mark.parametrize(
    "other",
    [
        replace(RECIPE, release="0.5.18"),
        replace(RECIPE, python="/usr/bin/python3 cpython-312 linux-x86_64"),
        replace(RECIPE, shared=("/base/lib",)),
    ],
)
def test_whatever_differs_in_the_recipe_is_another_environment(other: Recipe) -> None:
    assert other.key != RECIPE.key
    assert RECIPE.key == replace(RECIPE).key


def test_what_is_built_is_not_built_again(environment: Environment) -> None:
    for _ in range(2):
        build_once(environment, build, silent)
    assert environment.complete
    assert builds(environment) == 1


def test_failed_build_leaves_nothing(environment: Environment) -> None:
    def fail(half: Environment) -> None:
        half.python.parent.mkdir(parents=True)
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        build_once(environment, fail, silent)
    assert not environment.folder.exists()


def test_half_built_environment_is_recognised_and_built_again(environment: Environment) -> None:
    environment.python.parent.mkdir(parents=True)
    environment.python.touch()
    leftover = environment.folder / "leftover"
    leftover.touch()
    assert not environment.complete
    said: list[str] = []
    build_once(environment, build, said.append)
    assert environment.complete
    assert not leftover.exists()
    assert "half-built" in said[0]


def test_environment_whose_interpreter_is_gone_is_not_complete(environment: Environment) -> None:
    build_once(environment, build, silent)
    environment.python.unlink()
    environment.python.symlink_to("/nowhere/python3.10")
    assert not environment.complete


def test_two_processes_build_it_once(environment: Environment) -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=build_slowly, args=(environment.folder, 0.3)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert environment.complete
    assert builds(environment) == 1


def test_a_builder_that_is_killed_blocks_nobody(environment: Environment) -> None:
    process = multiprocessing.get_context("fork").Process(target=build_slowly, args=(environment.folder, 300.0))
    process.start()
    while not (environment.folder.parent / "builds").exists():
        time.sleep(0.01)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    build_once(environment, build, silent)
    assert environment.complete


def test_shared_packages_stand_behind_the_environments_own(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "own")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment.folder)], check=True)
    (own,) = environment.folder.glob("lib/python*/site-packages")
    base = tmp_path / "base's"
    linked = tmp_path / "linked"
    for folder, modules in ((own, ["both"]), (base, ["both", "only_base"]), (linked, ["only_linked"])):
        folder.mkdir(exist_ok=True)
        for module in modules:
            (folder / f"{module}.py").write_text(f"where = {folder.name!r}")
    (base / "linked.pth").write_text(f"{linked}\n")
    environment.share([str(base)])
    code = "import both, only_base, only_linked; print(both.where, only_base.where, only_linked.where)"
    said = subprocess.run([str(environment.python), "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["site-packages", "base's", "linked"]
