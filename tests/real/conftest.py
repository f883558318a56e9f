"""What holds for every test that boots a real SGLang: the releases are there, and no process of a test outlives it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from service.engine.registry import EngineRegistry
from service.home import Home
from tests.engine.process.launches import wait_for
from tests.real.launches import RELEASES
from tests.real.leftovers import MARK_VARIABLE, marked
from tests.real.soaks import Soak, soak

_LAST_MOMENTS_SECONDS = 5.0


@pytest.fixture(scope="session", autouse=True)
def mark() -> Iterator[str]:
    """A variable that every process started by these tests inherits, engines included."""
    os.environ[MARK_VARIABLE] = mark = uuid.uuid4().hex
    yield mark
    del os.environ[MARK_VARIABLE]
    # A warden ends a moment after the engine that it watched.
    assert wait_for(lambda: not marked(mark), _LAST_MOMENTS_SECONDS), f"left behind: {marked(mark)}"


@pytest.fixture(scope="session", autouse=True)
def installed_releases() -> None:
    """Without them nothing here can be shown, so their absence is a failure, not a reason to skip."""
    known = {engine.name for engine in EngineRegistry(Home.default()).list() if engine.python.exists()}
    missing = [release for release in RELEASES if release not in known]
    if missing:
        commands = " and ".join(f"`lastpage engine install {release}`" for release in missing)
        pytest.fail(f"engines missing: {', '.join(missing)}. `make test` installs them, {commands} too", pytrace=False)


@pytest.fixture(scope="session")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Soak:
    """A soak on the last release without the clamp, for all that look at its crash."""
    return soak(tmp_path_factory.mktemp("crashed"), "--engine", RELEASES[1], "--duration", "60s", "--seed", "1")


@pytest.fixture(autouse=True)
def no_engine_is_left(mark: str) -> Iterator[None]:
    """An engine is known by the token in its environment. What a test stopped is gone when it says so, not later."""
    yield
    left = marked(mark, engines_only=True)
    assert not left, f"processes of an engine are left behind: {left}"
