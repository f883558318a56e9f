"""Settings of a simulated engine: what is refused names the setting, its value and what is allowed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.sglang.releases import RELEASES
from service.engine.simulated import SIMULATION_VARIABLE, Event, PlantedEvent, Simulation


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("[]", "write a JSON object"),
        ('{"evnts": []}', "'evnts' is no setting of a simulated engine; there are release, time_scale,"),
        ('{"time_scale": "fast"}', "time_scale = 'fast' is no number that can be used"),
        ('{"time_scale": true}', "time_scale = True is no number that can be used"),
        ('{"time_scale": 1e999}', "time_scale = inf is no number that can be used"),
        (f'{{"time_scale": {"9" * 400}}}', "time_scale = a number of many digits is no number that can be used"),
        ('{"time_scale": 0}', "time_scale = 0.0 is not above 0"),
        ('{"step_seconds": -1}', "step_seconds = -1.0 is below 0"),
        ('{"release": "main"}', "release = 'main' is no version"),
        ('{"release": "0.5.23+ascend"}', "release = '0.5.23+ascend': write it as 0.5.23"),
        ('{"release": "v0.5.18 "}', "release = 'v0.5.18 ': write it as 0.5.18"),
        ("[" * 100_000, "nested too deeply"),
        ('{"events": [{"event": "signal", "signal": 999}]}', "signal = 999 is no signal"),
        ('{"events": [{"event": "signal", "signal": 0}]}', "signal = 0 is no signal"),
        ('{"events": "crash"}', "events"),
        ('{"events": ["crash"]}', "events"),
        ('{"events": [{"step": 1}]}', "events"),
        ('{"events": [{"event": "explode"}]}', "'explode' is no event; allowed: crash, signal, hang"),
        ('{"events": [{"event": "crash", "step": -1}]}', "step = -1 is below 0"),
        ('{"events": [{"event": "crash", "step": "soon"}]}', "step = 'soon' is no whole number"),
    ],
)
def test_what_cannot_be_simulated_is_refused_with_the_setting(settings: str, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        Simulation.from_json(settings)
    assert message in str(refused.value)


@given(
    st.builds(
        Simulation,
        release=st.sampled_from([*RELEASES.changed]),
        time_scale=st.floats(0.1, 1000),
        step_seconds=st.floats(0, 10),
        events=st.lists(st.builds(PlantedEvent, st.sampled_from(Event), st.integers(0, 10**6)), max_size=3).map(tuple),
    )
)
def test_settings_come_back_from_the_environment(simulation: Simulation) -> None:
    assert Simulation.from_json(simulation.environment[SIMULATION_VARIABLE]) == simulation
    assert json.loads(simulation.environment[SIMULATION_VARIABLE])["release"] == simulation.release


def test_the_release_that_is_simulated_by_default_is_the_newest_that_was_read() -> None:
    assert Simulation().release == [*RELEASES.changed][-1]


@pytest.mark.parametrize(("release", "clamp"), [("0.5.18", False), ("0.5.19", True), ("0.5.23", True)])
def test_the_clamp_is_there_from_the_release_that_brought_it(release: str, clamp: bool) -> None:
    assert Simulation(release=release).clamp is clamp
    assert Simulation(release=release).version == f"{release}+simulated"
