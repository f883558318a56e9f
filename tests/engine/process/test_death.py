from __future__ import annotations

import pytest

from service.engine.process.death import EngineDeath, first_death


def death(role: str, returncode: int | None) -> EngineDeath:
    if returncode is None:
        return EngineDeath(role, 12, None, None, 0)
    return EngineDeath.of(role, 12, returncode, 0)


@pytest.mark.parametrize(
    ("returncode", "told"),
    [
        (-9, "scheduler (pid 12) was ended by SIGKILL"),
        (-40, "scheduler (pid 12) was ended by signal 40"),
        (1, "scheduler (pid 12) exited with code 1"),
        (None, "scheduler (pid 12) is gone"),
    ],
)
def test_death_is_told_in_words(returncode: int | None, told: str) -> None:
    assert str(death("scheduler", returncode)) == told


@pytest.mark.parametrize(
    ("worker", "engine", "first"),
    [
        (-9, -11, "engine"),  # the worker followed its parent
        (None, -11, "engine"),
        (None, -9, "engine"),
        (0, -9, "scheduler"),  # the engine ended itself after its worker failed
        (-11, -9, "scheduler"),
        (-9, -9, "scheduler"),
    ],
)
def test_first_of_two_deaths_is_the_one_that_the_other_can_follow_from(
    worker: int | None, engine: int, first: str
) -> None:
    found = first_death(death("scheduler", worker), death("engine", engine))
    assert found is not None and found.role == first


def test_only_death_is_the_first() -> None:
    assert first_death(None, None) is None
    assert first_death(None, death("engine", 0)) == death("engine", 0)
    assert first_death(death("scheduler", 0), None) == death("scheduler", 0)
