"""Claims about `waves`: it sends what was written down, when the server is where it was, and refuses what it cannot."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from loadgen.requests.wave import Wave
from loadgen.scenarios import SCENARIOS, Observation
from loadgen.scenarios.replay import Replay, ReplayOptions
from loadgen.scenarios.tight.scenario import Tight, TightOptions
from loadgen.scenarios.waves.scenario import Waves, WavesOptions
from loadgen.sglang.pages import Pool
from loadgen.sglang.server import ServerConfiguration
from loadgen.sglang.shape import Shape
from loadgen.sglang.steps import ModelStep

POOL = Pool(128, 32)
STEP = ModelStep(1, 0, 1, 0, 9, 0, 0, 0)


def options(*waves: dict[str, Any], **more: Any) -> WavesOptions:
    return WavesOptions.model_validate({"waves": waves, **more})


def look(scenario: Waves, steps: int = 0, open_requests: int = 1, elapsed: float = 0.0) -> list[tuple[int, int]]:
    """What is sent when so much is seen, as lengths."""
    wave = scenario.next_wave(Observation(elapsed, [STEP] * steps, open_requests))
    return [(request.shape.prompt_tokens, request.shape.max_new_tokens) for request in wave.requests]


def scenario(*waves: dict[str, Any]) -> Waves:
    return Waves(ServerConfiguration(POOL), options(*waves), seed=1)


def test_a_wave_waits_for_its_steps_counted_from_when_the_server_was_idle() -> None:
    waves = scenario(
        {"requests": "5+9"}, {"after_steps": 3, "requests": "6+9"}, {"idle": True, "requests": "7+9"},
        {"after_steps": 2, "requests": "8+9"},
    )  # fmt: skip
    assert look(waves, open_requests=0) == [(5, 9)]
    assert look(waves, steps=2) == []
    assert look(waves, steps=1) == [(6, 9)]
    assert look(waves, steps=50) == []
    assert look(waves, open_requests=0) == [(7, 9)]
    assert look(waves, steps=1) == [] and not waves.finished
    assert look(waves, steps=1) == [(8, 9)] and waves.finished
    assert look(waves, steps=99, open_requests=0) == []


def test_an_idle_server_makes_no_steps_so_nothing_waits_for_them() -> None:
    waves = scenario({"requests": "5+9"}, {"after_steps": 3000, "requests": "6+9"})
    assert look(waves, open_requests=0) == [(5, 9)]
    assert look(waves, steps=7) == []
    assert look(waves, open_requests=0) == [(6, 9)]


def test_time_is_waited_for_even_by_an_idle_server() -> None:
    waves = scenario(
        {"after_seconds": 0.5, "requests": "5+1"}, {"idle": True, "requests": "6+1"},
        {"after_seconds": 0.5, "requests": "7+1"}, {"idle": True, "after_seconds": 1, "requests": "8+1"},
    )  # fmt: skip
    assert look(waves, open_requests=0, elapsed=0.4) == []
    assert look(waves, open_requests=0, elapsed=0.5) == [(5, 1)]
    assert look(waves, open_requests=0, elapsed=2.0) == [(6, 1)]
    assert look(waves, open_requests=0, elapsed=2.4) == []
    assert look(waves, open_requests=0, elapsed=2.5) == [(7, 1)]
    assert look(waves, open_requests=1, elapsed=3.5) == look(waves, open_requests=0, elapsed=3.4) == []
    assert look(waves, open_requests=0, elapsed=3.5) == [(8, 1)]


def test_requests_keep_their_numbers_and_the_way_in_which_they_are_sent() -> None:
    waves = scenario({"requests": "40:5+9 6+9", "streamed": True}, {"requests": "7+9!3"})
    sent = [waves.next_wave(Observation(0.0, (), 0)) for _ in range(2)]
    assert [[request.number for request in wave.requests] for wave in sent] == [[40, 41], [42]]
    assert [wave.streamed for wave in sent] == [True, False]
    assert sent[1].requests[0].hang_up_tokens == 3


@settings(max_examples=50)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20)), min_size=1, max_size=6), st.data())
def test_whatever_is_seen_every_wave_is_sent_once_in_order(waits: list[tuple[bool, int]], data: st.DataObject) -> None:
    written = [
        {"idle": idle, "after_steps": 0 if idle else steps, "requests": f"{place + 1}+2"}
        for place, (idle, steps) in enumerate(waits)
    ]
    waves, sent = scenario(*written), []
    for _ in range(100):
        seen = data.draw(st.tuples(st.integers(0, 9), st.integers(0, 2)))
        sent += look(waves, *seen)
    while not waves.finished:
        sent += look(waves, steps=0, open_requests=0)
    assert sent == [(place + 1, 2) for place in range(len(waits))]


def test_the_server_is_launched_as_the_scenario_that_made_the_waves_needs_it() -> None:
    made = options({"requests": "5+9"}, made_by="tight", made_with={"queue": 32})
    assert Waves.engine_needs(POOL, made) == Tight.engine_needs(POOL, TightOptions(queue=32))
    assert Waves.faults(Pool(16, 3), made) == Tight.faults(Pool(16, 3), TightOptions(queue=32))
    bare = options({"requests": "5+9"})
    assert Waves.engine_needs(POOL, bare).arguments == () and Waves.faults(Pool(16, 3), bare) == []


@pytest.mark.parametrize("page_size", [16, 17, 96, 128, 3000, 4096])
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_prefill_is_whole_pages_on_every_page_size(name: str, page_size: int) -> None:
    """SGLang does not start otherwise; its own sizes are powers of two, and no less than 2048."""
    kind, pool = SCENARIOS[name], Pool(page_size, 64)
    made = options({"requests": "5+9"}) if name == "waves" else kind.Options()
    arguments = kind.engine_needs(pool, made).arguments
    sizes = [int(after) for name, after in itertools.pairwise(arguments) if name == "--chunked-prefill-size"]
    assert (sizes or [2048])[-1] % page_size == 0


def test_waves_that_a_trace_made_do_not_need_it() -> None:
    gone = {"path": "/nowhere/trace.jsonl"}
    made = options({"requests": "5+9"}, made_by="replay", made_with=gone)
    assert Waves.faults(POOL, made) == []
    assert Waves.engine_needs(POOL, made) == Replay.engine_needs(POOL, ReplayOptions())


def test_a_fault_of_the_maker_is_told_where_its_options_stand() -> None:
    pool, needs = Pool(128, 8), [1, 30]
    (fault,) = Tight.faults(pool, TightOptions.model_validate({"needs": needs}))
    (told,) = Waves.faults(pool, options({"requests": "5+9"}, made_by="tight", made_with={"needs": needs}))
    assert (fault.field, told.field) == ("load.options.needs", "load.options.made_with.needs")


def test_a_prompt_that_the_pool_cannot_hold_is_refused() -> None:
    (fault,) = Waves.faults(POOL, options({"requests": "4095+9"}, {"requests": "9+9 4096+1"}))
    assert (fault.field, fault.value) == ("engine.pool_pages", 32) and "a prompt of 4096 tokens" in fault.message
    assert Waves.longest_request(POOL, options({"requests": "100+9 80+30"})) == 110


@pytest.mark.parametrize(
    ("given", "where", "said"),
    [
        ({"waves": []}, ("waves",), "there is no wave"),
        ({"waves": [{"requests": "5+9 " * 100_001}] * 2}, ("waves",), "200,002 requests; allowed: up to 200,000"),
        ({"waves": [{"requests": "5+9"}, {"requests": "5+9 x"}]}, ("waves", 1, "requests"), "request 2, 'x'"),
        ({"waves": [{"requests": "5+9", "after": 3}]}, ("waves", 0, "after"), "Extra inputs"),
        ({"waves": [{"requests": "5+9", "after_steps": -1}]}, ("waves", 0, "after_steps"), "greater than or equal"),
        ({"waves": [{"requests": "5+9", "idle": True, "after_steps": 3}]}, ("waves", 0), "both idle and"),
        ({"waves": [{"requests": "5+9"}], "made_by": "waves"}, ("made_by",), "no such scenario; allowed: tight, "),
        ({"waves": [{"requests": "5+9"}], "made_by": "tigt"}, ("made_by",), "no such scenario; allowed: tight, "),
        ({"waves": [{"requests": "5+9"}], "made_with": {"queue": 9}}, ("made_with",), "allowed: none without made_by"),
        (
            {"waves": [{"requests": "5+9"}], "made_by": "tight", "made_with": {"queue": 1}},
            ("made_with", "queue"),
            "Input should be greater than or equal to 8",
        ),
    ],
)
def test_what_cannot_be_sent_is_refused_where_it_stands(given: Any, where: tuple[Any, ...], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        WavesOptions.model_validate(given)
    (error,) = refused.value.errors()
    assert error["loc"] == where and said in error["msg"]


def test_waves_are_a_scenario_like_any_other() -> None:
    assert SCENARIOS["waves"] is Waves
    assert scenario({"requests": "5+9"}).next_wave(Observation(0.0, (), 0)) == Wave(
        Waves(ServerConfiguration(POOL), options({"requests": "5+9"}), 1).options.requests()[0]
    )
    assert Shape(5, 9) == options({"requests": "5+9"}).requests()[0][0].shape
