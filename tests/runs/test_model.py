"""Claims about what a run's values derive from each other."""

from __future__ import annotations

import pytest

from service.plugin.settings import Allocator
from tests.fake_executor import ENGINE


@pytest.mark.parametrize("installed", [True, False, None])
def test_whether_the_allocator_that_runs_has_the_clamp_follows_from_its_variant(installed: bool | None) -> None:
    expected = {Allocator.INSTALLED: installed, Allocator.PATCHED: True, Allocator.UNPATCHED: False}
    for allocator, clamped in expected.items():
        engine = ENGINE.model_copy(update={"clamp": installed, "allocator": allocator})
        assert engine.model_dump()["runs_with_clamp"] is clamped
