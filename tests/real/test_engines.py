"""Installed releases, asked themselves. `make test` installs both before these run."""

from __future__ import annotations

import time

import pytest

from service.engine.check import check
from service.engine.install.install import install
from service.engine.registry import EngineRegistry
from service.home import Home
from service.plugin.settings import Profile

pytestmark = pytest.mark.real


@pytest.mark.parametrize(("release", "clamp"), [("0.5.23", True), ("0.5.18", False)])
def test_clamp_is_judged_by_what_the_release_does(release: str, clamp: bool) -> None:
    found = check(EngineRegistry(Home.default()).get(release))
    assert (found.version, found.clamp, found.problem) == (release, clamp, None)


def test_machine_without_an_npu_rehearses() -> None:
    found = check(EngineRegistry(Home.default()).get("0.5.23"))
    assert found.profile is (Profile.ASCEND if found.npu.available else Profile.REHEARSAL)


@pytest.mark.parametrize("release", ["0.5.23", "0.5.18"])
def test_installing_what_is_there_costs_no_time(release: str) -> None:
    started = time.monotonic()
    engine = install(Home.default(), release)
    assert time.monotonic() - started < 1
    assert engine.version == release
