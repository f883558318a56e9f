"""Claims about waves that are written down: they make the load again that they were taken from."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loadgen.requests.planned_request import PlannedRequest
from loadgen.requests.wave import SentWave, Wave
from loadgen.scenarios import SCENARIOS
from loadgen.scenarios.base import Scenario
from loadgen.scenarios.steady import Steady, SteadyOptions
from loadgen.scenarios.tight.scenario import Tight, TightOptions
from loadgen.scenarios.waves.recorded import wave_specs_of
from loadgen.scenarios.waves.scenario import Waves, WavesOptions, WaveSpec
from loadgen.sglang.pages import Pool
from loadgen.sglang.rules import Rules
from loadgen.sglang.scheduler import Scheduler
from loadgen.sglang.server import ServerConfiguration
from loadgen.sglang.shape import Shape
from loadgen.sglang.steps import ModelStep

from ..modelled_load import ModelledLoad
from ..recorded import Recorded, bodies
from ..releases import DIFFERENT, NAMES, NEW, OLD

POOL = Pool(128, 32)
TRAITS = ServerConfiguration(POOL)


def drive(scenario: Scenario[Any], rules: Rules, steps: int, poll: int = 4) -> tuple[Recorded, list[ModelStep]]:
    recorded = Recorded(scenario)
    load = ModelledLoad(recorded, Scheduler(POOL, rules=rules), poll=poll)
    return recorded, load.run(steps)


def again(sent: list[SentWave], rules: Rules, steps: int, poll: int = 4) -> tuple[Recorded, list[ModelStep]]:
    """Replay what was written down, through the text that stands in a file."""
    written = json.dumps([wave.model_dump(exclude_defaults=True) for wave in wave_specs_of(sent)])
    options = WavesOptions.model_validate({"waves": json.loads(written), "made_by": "tight"})
    return drive(Waves(TRAITS, options, seed=1), rules, steps, poll)


def numbered(sent: SentWave) -> list[tuple[int, Shape]]:
    return [(number, request.shape) for number, request in sent.numbered]


@pytest.mark.parametrize("rules", DIFFERENT, ids=NAMES)
def test_a_replay_on_an_equal_server_makes_the_same_decode_steps(rules: Rules) -> None:
    first, steps = drive(Tight(TRAITS, TightOptions(), seed=1), rules, 60)
    assert [wave.open_requests for wave in first.sent].count(0) == 1
    second, replayed = again(first.sent, rules, 60)
    assert replayed == steps
    assert [numbered(wave) for wave in second.sent] == [numbered(wave) for wave in first.sent]


def test_a_replay_that_is_looked_at_at_other_times_reaches_the_edge_as_well() -> None:
    first, steps = drive(Tight(TRAITS, TightOptions(), seed=1), OLD, 200)
    assert any(step.critical for step in steps)
    for poll in (1, 3, 6):
        _, replayed = again(first.sent, OLD, 200, poll)
        assert any(step.critical for step in replayed)


def test_only_what_was_sent_since_the_server_was_idle_is_written_down() -> None:
    sent = [
        SentWave(0.0, 0, 0, 1, Wave.of([Shape(5, 9)] * 2)),
        SentWave(0.1, 30, 1, 3, Wave.of([Shape(6, 9)])),
        SentWave(0.2, 60, 0, 4, Wave.of([Shape(7, 9)] * 3)),
        SentWave(0.3, 75, 2, 7, Wave.of([Shape(8, 9)], streamed=True)),
    ]
    assert wave_specs_of(sent) == (
        WaveSpec(requests="4:7+9 7+9 7+9"),
        WaveSpec(after_steps=15, streamed=True, requests="8+9"),
    )
    assert wave_specs_of(sent, idle_is_enough=False) == (
        WaveSpec(requests="5+9 5+9"),
        WaveSpec(after_steps=30, requests="6+9"),
        WaveSpec(idle=True, requests="7+9 7+9 7+9"),
        WaveSpec(after_steps=15, streamed=True, requests="8+9"),
    )


def test_a_server_that_clients_have_just_left_is_not_taken_for_idle() -> None:
    sent = [
        SentWave(0.0, 0, 0, 1, Wave.of([Shape(5, 9)])),
        SentWave(0.2, 30, 0, 2, Wave((PlannedRequest(Shape(6, 90), hang_up_tokens=2),))),
        SentWave(0.3, 35, 0, 3, Wave.of([Shape(7, 9)])),
    ]
    assert wave_specs_of(sent) == (WaveSpec(requests="2:6+90!2"), WaveSpec(idle=True, requests="7+9"))


def test_where_no_step_was_seen_between_two_waves_time_tells_them_apart() -> None:
    sent = [
        SentWave(1.0, 40, 0, 1, Wave.of([Shape(5, 1)])),
        SentWave(1.25, 40, 1, 2, Wave.of([Shape(6, 1)])),
        SentWave(1.5, 48, 1, 3, Wave.of([Shape(7, 1)])),
        SentWave(1.51, 48, 1, 4, Wave.of([Shape(8, 1)])),
    ]
    assert wave_specs_of(sent) == (
        WaveSpec(requests="5+1"),
        WaveSpec(after_seconds=0.25, requests="6+1"),
        WaveSpec(after_steps=8, requests="7+1"),
        WaveSpec(after_steps=8, requests="8+1"),
    )


def test_of_a_load_that_was_long_never_idle_what_was_open_at_its_beginning_comes_at_once() -> None:
    sent = [
        SentWave(float(place), 10 * place, 5, 1 + 2 * place, Wave.of([Shape(place, 9)] * 2)) for place in range(50, 55)
    ]
    assert wave_specs_of(sent) == (
        WaveSpec(requests="101:50+9 50+9 51+9 51+9 52+9 52+9"),
        WaveSpec(after_steps=10, requests="53+9 53+9"),
        WaveSpec(after_steps=20, requests="54+9 54+9"),
    )


def test_the_end_of_a_long_load_still_reaches_the_edge() -> None:
    first, _ = drive(Tight(TRAITS, TightOptions(), seed=1), NEW, 3000)
    sent = first.sent[-200:]
    assert all(wave.open_requests for wave in sent)
    second, replayed = again(sent, NEW, 1000)
    assert sum(step.critical for step in replayed) > 3
    assert second.sent[0].first_number == 1 and next(iter(second.sent[0].numbered))[0] == sent[0].first_number


def test_nothing_sent_is_nothing_written() -> None:
    assert wave_specs_of([]) == ()


# -- the same seed, the same bytes


# `extend` sends prompts that the model's rule for what SGLang serves refuses; the others need options.
WITH_DEFAULTS = sorted(set(SCENARIOS) - {"extend", "waves"})


@pytest.mark.anyio
@pytest.mark.parametrize("rules", DIFFERENT, ids=NAMES)
@pytest.mark.parametrize("name", WITH_DEFAULTS)
async def test_a_seed_and_the_same_observations_give_the_same_requests_byte_for_byte(name: str, rules: Rules) -> None:
    scenario = SCENARIOS[name]
    (first, seen), (second, seen_again) = (drive(scenario(TRAITS, scenario.Options(), 7), rules, 150) for _ in range(2))
    assert first.sent and seen == seen_again
    assert await bodies(first.sent, 7) == await bodies(second.sent, 7)


@pytest.mark.anyio
async def test_without_observing_the_requests_are_the_same_whatever_the_server_does() -> None:
    """Only how many are sent within a time can differ."""
    options = SteadyOptions(rate=40)
    first, _ = drive(Steady(TRAITS, options, 7), NEW, 300)
    second, _ = drive(Steady(TRAITS, options, 7), OLD, 300, poll=9)
    one, other = await bodies(first.sent, 7), await bodies(second.sent, 7)
    both = min(len(one), len(other))
    assert both > 20 and one[:both] == other[:both]


@pytest.mark.anyio
async def test_a_replay_sends_the_bytes_of_the_load_that_was_written_down() -> None:
    first, _ = drive(Tight(TRAITS, TightOptions(), seed=7), NEW, 300)
    second, _ = again(first.sent, NEW, 300)
    assert await bodies(second.sent, 7) == await bodies(first.sent, 7)
    assert await bodies(second.sent, 8) != await bodies(first.sent, 7)
