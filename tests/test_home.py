from __future__ import annotations

from pathlib import Path

import pytest

from service.home import Home, HomeNotUsable


def test_lastpage_home_decides_where_things_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LASTPAGE_HOME", str(tmp_path / "chosen"))
    assert Home.default().root == tmp_path / "chosen"


def test_a_relative_home_is_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LASTPAGE_HOME", "here")
    assert Home.default().root == tmp_path / "here"


def test_the_home_of_nobody_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LASTPAGE_HOME", "~no such user/x")
    with pytest.raises(HomeNotUsable, match=r"LASTPAGE_HOME = '~no such user/x'"):
        Home.default()


def test_without_lastpage_home_it_is_the_users_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LASTPAGE_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Home.default().root == tmp_path / "lastpage"


def test_looking_at_a_home_creates_nothing(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    assert not home.engines.exists()
    assert home.ensure().engines.is_dir()
