"""Claims about the loads kept in tests/regressions: each can be run, and is as short as what is known of it allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadgen.scenarios.waves.scenario import WavesOptions
from loadgen.sglang.pages import Pool
from loadgen.sglang.rules import Rules
from loadgen.shrink import Case
from loadgen.shrink.on_model import ServerModel
from service.engine.crash.signatures import CrashKind
from service.spec.parsing import parse_spec
from service.spec.yaml_text import load_yaml

from ..loadgen.releases import DIFFERENT, NAMES

FILES = sorted((Path(__file__).parents[1] / "regressions").glob("*.yaml"))


def test_there_are_some() -> None:
    assert FILES


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_is_a_spec_of_waves_that_says_of_which_crash(file: Path) -> None:
    spec = parse_spec(load_yaml(file))
    assert spec.load.scenario == "waves" and spec.load.seed is not None
    assert spec.labels["crash"] in {kind.value for kind in CrashKind}
    assert "critical_steps >= 1" in spec.thresholds


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
@pytest.mark.parametrize("rules", DIFFERENT, ids=NAMES)
def test_the_model_foresees_a_critical_step_on_every_release(file: Path, rules: Rules) -> None:
    """So a release that survives it has met the edge, and not passed it by."""
    spec = parse_spec(load_yaml(file))
    case = Case.of(Pool(spec.engine.page_size, spec.engine.pool_pages), WavesOptions.model_validate(spec.load.options))
    assert case.size.requests == 2
    assert ServerModel(True, rules, 8192).foresees(case)
