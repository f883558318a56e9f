from __future__ import annotations

import sys
from pathlib import Path

import pytest

from service.engine.installation import Engine
from service.engine.registry import EngineRegistry
from service.errors import EngineInUse, EngineNameRefused, EngineNotFound
from service.home import Home
from tests.engine.interpreters import answering

NPU = {"torch_npu": "2.8.0", "available": True, "count": 1, "name": "Ascend910B3", "problem": None}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def registry(home: Home, tmp_path: Path) -> EngineRegistry:
    (tmp_path / "dev").mkdir()
    return EngineRegistry(home, devices=tmp_path / "dev")


def installed(registry: EngineRegistry, home: Home, version: str, base: str | None = None) -> Engine:
    python = home.environments / f"sglang-{version}" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    return registry.record(Engine(name=version, python=python, origin="installed", version=version, base=base))


def test_added_engine_is_found_again(registry: EngineRegistry) -> None:
    engine = registry.add("mine", Path(sys.executable))
    assert registry.get("mine") == engine
    assert registry.list() == [engine]


def test_link_to_an_interpreter_is_kept_a_link(registry: EngineRegistry, tmp_path: Path) -> None:
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    assert registry.add("mine", link).python == link


def test_unknown_engine_is_refused_with_those_that_are_known(registry: EngineRegistry) -> None:
    registry.add("mine", Path(sys.executable))
    with pytest.raises(EngineNotFound, match=r"'other' is not known\. Known engines: mine"):
        registry.get("other")
    with pytest.raises(EngineNotFound, match=r"not installed; `lastpage engine install 0\.5\.18` does that"):
        registry.get("0.5.18")


def test_an_interpreter_in_the_home_of_nobody_is_refused(registry: EngineRegistry) -> None:
    with pytest.raises(EngineNotFound, match="is not an executable file"):
        registry.add("mine", Path("~no such user/python"))


def test_without_any_engine_the_error_says_how_to_get_one(registry: EngineRegistry) -> None:
    with pytest.raises(EngineNotFound, match="lastpage engine install"):
        registry.get("other")
    with pytest.raises(EngineNotFound, match=r"lastpage engine install 0\.5\.23"):
        registry.default()


@pytest.mark.parametrize("name", ["", "../up", "a b", ".hidden", "a/b", "a\n"])
def test_name_that_is_no_file_name_is_refused(registry: EngineRegistry, name: str) -> None:
    with pytest.raises(EngineNameRefused, match="is not allowed"):
        registry.add(name, Path(sys.executable))


def test_installed_release_cannot_be_shadowed(registry: EngineRegistry, home: Home) -> None:
    installed(registry, home, "0.5.23")
    with pytest.raises(EngineNameRefused, match="installed release"):
        registry.add("0.5.23", Path(sys.executable))


def test_path_without_an_interpreter_is_refused(registry: EngineRegistry, tmp_path: Path) -> None:
    with pytest.raises(EngineNotFound, match="is not an executable file"):
        registry.add("mine", tmp_path)
    assert registry.list() == []


def test_default_is_the_newest_installed_release(registry: EngineRegistry, home: Home) -> None:
    for version in ("0.5.9", "0.5.23", "0.5.18"):
        installed(registry, home, version)
    registry.add("zz", Path(sys.executable))
    assert registry.default().name == "0.5.23"


def test_only_engine_is_the_default_though_it_was_added(registry: EngineRegistry) -> None:
    registry.add("container", Path(sys.executable))
    assert registry.default().name == "container"
    registry.add("other", Path(sys.executable))
    with pytest.raises(EngineNotFound, match="none is installed"):
        registry.default()


def test_with_an_npu_the_default_is_a_registered_engine_that_sees_it(
    registry: EngineRegistry, home: Home, tmp_path: Path
) -> None:
    installed(registry, home, "0.5.23")
    registry.add("vendor", answering(tmp_path / "python", npu=NPU))
    assert registry.default().name == "0.5.23"
    (tmp_path / "dev" / "davinci0").touch()
    assert registry.default().name == "vendor"


def test_with_an_npu_the_images_own_python3_is_found(
    registry: EngineRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dev" / "davinci0").touch()
    answering(tmp_path / "path" / "python3", npu=NPU)
    monkeypatch.setenv("PATH", f"{tmp_path}/path:/usr/bin:/bin")
    assert registry.default() == registry.get("system")
    assert registry.get("system").version == "0.5.23"


def test_engine_that_another_is_built_on_is_not_removed(registry: EngineRegistry, home: Home) -> None:
    base = installed(registry, home, "0.5.23")
    installed(registry, home, "0.5.18", base="0.5.23")
    with pytest.raises(EngineInUse, match=r"0\.5\.18"):
        registry.remove("0.5.23")
    registry.remove("0.5.18")
    registry.remove("0.5.23")
    assert registry.list() == []
    assert not base.folder.exists()


def test_removing_an_added_engine_leaves_its_environment_alone(registry: EngineRegistry, tmp_path: Path) -> None:
    python = answering(tmp_path / "theirs" / "bin" / "python")
    registry.add("mine", python)
    registry.remove("mine")
    assert python.exists()


def test_file_that_holds_no_engine_is_passed_over(registry: EngineRegistry, home: Home) -> None:
    registry.add("mine", Path(sys.executable))
    (home.engines / "broken.json").write_text("{")
    assert [engine.name for engine in registry.list()] == ["mine"]
