"""Claims about what is found on the model: the load of `tight` comes down to two requests, sent together."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.requests.wave import SentWave
from loadgen.scenarios.base import NoOptions
from loadgen.scenarios.prefix import Prefix
from loadgen.scenarios.tight.scenario import Tight, TightOptions
from loadgen.scenarios.waves.recorded import wave_specs_of
from loadgen.scenarios.waves.scenario import WavesOptions
from loadgen.sglang.pages import Pool
from loadgen.sglang.releases import rules_for
from loadgen.sglang.rules import Rules
from loadgen.sglang.scheduler import Scheduler
from loadgen.sglang.server import ServerConfiguration
from loadgen.shrink import Case
from loadgen.shrink.on_model import ServerModel, model_of

from ..modelled_load import ModelledLoad
from ..recorded import Recorded
from ..releases import DIFFERENT, NEW, OLD


def first_crash(pool: Pool, rules: Rules, overlap: bool = True) -> Case:
    """What `tight` has sent when the first step is critical, as a repro has it."""
    recorded = Recorded(Tight(ServerConfiguration(pool, overlap), TightOptions(), seed=1))
    load = ModelledLoad(recorded, Scheduler(pool, rules=rules, overlap=overlap))
    while not any(step.critical for step in load.run(1)):
        assert len(load.steps) < 1000
    sent: list[SentWave] = recorded.sent
    return Case.of(pool, WavesOptions(waves=wave_specs_of(sent)))


@settings(max_examples=12, deadline=None)
@given(st.builds(Pool, st.sampled_from([32, 64, 128]), st.integers(8, 64)), st.sampled_from(DIFFERENT), st.booleans())
def test_a_crash_of_tight_comes_down_to_two_requests_sent_together(pool: Pool, rules: Rules, overlap: bool) -> None:
    case = first_crash(pool, rules, overlap)
    model = ServerModel(overlap, rules, 8192)
    assert case.size.requests > 10
    best = model.shortest(case, seconds=60)
    assert best is not None and model.foresees(best)
    assert (best.size.requests, best.size.waves, best.size.waiting) == (2, 1, 0)
    assert best.size.answer_tokens <= 8


def test_two_requests_of_two_tokens_do_on_both_releases() -> None:
    """The case that tests/regressions keeps."""
    for rules in DIFFERENT:
        best = ServerModel(True, rules, 8192).shortest(first_crash(Pool(128, 32), rules), seconds=60)
        assert best is not None
        assert [wave.requests for wave in best.written()] == ["3840+2 1+2"]


def test_a_crash_beside_a_full_prefix_cache_comes_down_to_a_few_requests() -> None:
    pool, rules = Pool(128, 32), OLD
    server = ServerConfiguration(pool, prefix_cache=True)
    recorded = Recorded(Prefix(server, NoOptions(), seed=1))
    load = ModelledLoad(recorded, Scheduler(pool, rules=rules, prefix_cache=True))
    while not any(step.critical for step in load.run(1)):
        assert len(load.steps) < 2000
    case = Case.of(pool, WavesOptions(waves=wave_specs_of(recorded.sent, idle_is_enough=False)))
    model = ServerModel(True, rules, 8192, prefix_cache=True)
    best = model.shortest(case, seconds=60)
    assert best is not None and model.foresees(best)
    assert best.size < case.size and best.size.requests <= 4


def test_a_load_without_a_critical_step_comes_to_nothing() -> None:
    case = Case.of(Pool(128, 32), WavesOptions.model_validate({"waves": [{"requests": "105+25 104+26"}]}))
    model = ServerModel(True, NEW, 8192)
    assert not model.foresees(case) and model.shortest(case, seconds=60) is None


def test_what_the_server_would_refuse_is_not_foreseen_to_crash() -> None:
    case = Case.of(Pool(128, 32), WavesOptions.model_validate({"waves": [{"requests": "4095+2 1+2"}]}))
    assert not ServerModel(True, OLD, 8192).foresees(case)


def test_the_time_that_is_given_is_kept() -> None:
    case = first_crash(Pool(128, 32), OLD)
    times = iter(range(1000))
    best = ServerModel(True, OLD, 8192).shortest(case, seconds=20, clock=lambda: next(times))
    assert best is not None and best.size < case.size
    assert next(times) < 23


@pytest.mark.parametrize(("version", "rules"), [("0.5.18", OLD), ("0.5.23", NEW)])
def test_the_model_is_that_of_the_release(version: str, rules: Rules) -> None:
    server = ServerConfiguration(Pool(128, 32), overlap=False, prefix_cache=True, rules=rules_for(version).rules)
    model = model_of(replace(server, chunked_prefill_size=4096))
    assert model == ServerModel(False, rules, 4096, prefix_cache=True)
