"""Claims about preflight: whatever cannot work is refused before launch, by its field, with what is allowed."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from loadgen.scenarios import SCENARIOS
from loadgen.scenarios.tight.scenario import Tight
from loadgen.sglang.pages import Pool
from service.engine.registry import EngineRegistry
from service.engine.simulated import SIMULATION_VARIABLE
from service.execution.preflight import prepare
from service.home import Home
from service.plugin.settings import Profile
from service.spec.faults import Fault
from service.spec.parsing import parse_spec
from tests.engine.interpreters import answering, calls, script


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The interpreter of a healthy engine."""
    return answering(tmp_path / "engine" / "bin" / "python")


@pytest.fixture
def home(tmp_path: Path, python: Path) -> Home:
    made = Home(tmp_path / "home").ensure()
    EngineRegistry(made).add("mine", python)
    return made


def faults(home: Home, **spec: Any) -> dict[str, Fault]:
    """The faults of a spec, by field."""
    prepared, found = prepare(parse_spec(spec), home)
    assert prepared is None and found
    assert len({fault.field for fault in found}) == len(found)
    return {fault.field: fault for fault in found}


def test_a_spec_that_can_work_is_prepared_with_all_that_it_refers_to(home: Home, python: Path) -> None:
    prepared, found = prepare(parse_spec({"engine": {"name": "mine"}}), home)
    assert found == [] and prepared is not None
    assert (prepared.engine.python, prepared.check.version) == (python, "0.5.23")
    assert (prepared.scenario, prepared.server.pool) == (Tight, Pool(128, 32))
    assert prepared.facts.end_tokens == () and (prepared.model / "config.json").exists()
    assert "--disable-radix-cache" in prepared.needs.arguments
    assert calls(python) == 1


def test_the_home_of_nobody_is_a_fault_of_the_model(home: Home) -> None:
    assert "no such user" in faults(home, engine={"model": "~no such user/x"})["engine.model"].message


def test_the_empty_spec_takes_the_default_engine(home: Home) -> None:
    prepared, _ = prepare(parse_spec(None), home)
    assert prepared is not None and prepared.engine.name == "mine"


def test_no_engine_at_all_tells_how_to_get_one(tmp_path: Path) -> None:
    found = faults(Home(tmp_path / "empty").ensure())
    assert "`lastpage engine install 0.5.23`" in found["engine.name"].message


def test_an_unknown_engine_is_refused_with_those_that_are_known(home: Home) -> None:
    fault = faults(home, engine={"name": "0.5.99"})["engine.name"]
    assert fault.value == "0.5.99"
    assert "Known engines: mine" in fault.message


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"problem": "there is no sglang in the environment"}, "cannot be run: there is no sglang"),
        ({"problem": "UnexpectedAllocator: alloc_decode handed out [1]"}, "cannot be run: UnexpectedAllocator"),
    ],
)
def test_an_engine_that_says_it_cannot_is_refused(
    home: Home, tmp_path: Path, answer: dict[str, Any], reason: str
) -> None:
    EngineRegistry(home).add("broken", answering(tmp_path / "broken" / "python", **answer))
    fault = faults(home, engine={"name": "broken"})["engine.name"]
    assert (fault.value, fault.message[: len(reason)]) == ("broken", reason)


def test_an_interpreter_that_says_nothing_of_use_is_refused(home: Home, tmp_path: Path) -> None:
    EngineRegistry(home).add("mute", script(tmp_path / "mute" / "python", "exit 3"))
    assert faults(home, engine={"name": "mute"})["engine.name"].value == "mute"


def test_an_unknown_scenario_is_refused_with_those_that_there_are(home: Home) -> None:
    fault = faults(home, load={"scenario": "tihgt"})["load.scenario"]
    assert (fault.value, fault.message) == ("tihgt", f"no such scenario; allowed: {', '.join(SCENARIOS)}")


@pytest.mark.parametrize(
    ("scenario", "options", "field", "message"),
    [
        ("tight", {"deep": 4}, "load.options.deep", "unknown field; allowed: queue"),
        ("tight", {"queue": 7}, "load.options.queue", "greater than or equal to 8"),
        ("steady", {"rate": 0}, "load.options.rate", "greater than 0"),
        ("steady", {"queue": 8}, "load.options.queue", "unknown field; allowed: rate, max_prompt_tokens"),
    ],
)
def test_an_option_that_the_scenario_does_not_take_is_refused(
    home: Home, scenario: str, options: dict[str, Any], field: str, message: str
) -> None:
    fault = faults(home, load={"scenario": scenario, "options": options})[field]
    assert fault.value == next(iter(options.values()))
    assert message in fault.message


@pytest.mark.parametrize(
    ("engine", "load", "field", "value", "message"),
    [
        ({"page_size": 8}, {}, "engine.page_size", 8, "tight needs at least 32"),
        ({"pool_pages": 6}, {}, "engine.pool_pages", 6, "tight needs at least 7"),
        ({"pool_pages": 2}, {"scenario": "steady"}, "engine.pool_pages", 2, "use a larger pool, or shorter lengths"),
    ],
)
def test_a_pool_that_the_scenario_cannot_work_on_is_refused(
    home: Home, engine: dict[str, Any], load: dict[str, Any], field: str, value: int, message: str
) -> None:
    fault = faults(home, engine=engine, load=load)[field]
    assert fault.value == value and message in fault.message


def test_requests_longer_than_the_model_takes_are_refused(home: Home, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 512, "max_position_embeddings": 512}))
    fault = faults(home, engine={"model": str(tmp_path), "pool_pages": 32})["engine.pool_pages"]
    assert fault.value == 32
    assert fault.message.startswith("tight sends requests of up to ") and "the model takes 512" in fault.message


@pytest.mark.parametrize(("model", "reason"), [("nowhere", "is not a folder"), (".", "has no config.json")])
def test_a_folder_that_is_no_model_is_refused(home: Home, tmp_path: Path, model: str, reason: str) -> None:
    fault = faults(home, engine={"model": str(tmp_path / model)})["engine.model"]
    assert reason in fault.message


def test_arguments_that_the_controller_owns_are_refused(home: Home) -> None:
    given = ["--port", "80", "--page-size=1"]
    prepared, found = prepare(parse_spec({"engine": {"args": given}}), home)
    assert prepared is None
    assert [(fault.field, fault.value) for fault in found] == [("engine.args", given)] * 2
    assert ["use engine.port" in found[0].message, "use engine.page_size" in found[1].message] == [True, True]


def test_a_port_that_is_taken_is_refused(home: Home) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        fault = faults(home, engine={"port": port})["engine.port"]
    assert fault.value == port and "is taken by another process" in fault.message


def test_every_fault_is_told_at_once(home: Home) -> None:
    found = faults(
        home,
        engine={"name": "none", "model": "/nowhere", "args": ["--host", "::"]},
        load={"scenario": "tight", "options": {"queue": 1}},
    )
    assert set(found) == {"engine.name", "engine.model", "engine.args", "load.options.queue"}


def test_a_home_that_cannot_be_written_to_is_told(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("service.execution.preflight.write_tiny_model", full)
    assert "the tiny model cannot be written: [Errno 28]" in faults(home)["engine.model"].message


def test_an_engine_with_an_npu_runs_as_ascend(home: Home, tmp_path: Path) -> None:
    npu = {"torch_npu": "2.8.0", "available": True, "count": 8, "name": "Ascend910B", "problem": None}
    EngineRegistry(home).add("npu", answering(tmp_path / "npu" / "python", npu=npu))
    prepared, _ = prepare(parse_spec({"engine": {"name": "npu"}}), home)
    assert prepared is not None and prepared.check.profile is Profile.ASCEND


def test_a_request_has_to_starve_before_the_engine_hangs(home: Home) -> None:
    fault = faults(home, engine={"hang_seconds": 8}, load={"starve_seconds": 8})["load.starve_seconds"]
    assert fault.value == 8 and "less than engine.hang_seconds, 8" in fault.message
    assert prepare(parse_spec({"load": {"starve_seconds": 12}}), home)[1] == []


def test_latencies_are_not_asked_for_where_none_are_measured(home: Home) -> None:
    asked = {"thresholds": ["latencies.ttft_ms.p99 <= 2000"]}
    fault = faults(home, load={"scenario": "mixed"}, **asked)["thresholds"]
    assert fault.value == "latencies.ttft_ms.p99 <= 2000" and "mixed has no answers streamed" in fault.message
    assert prepare(parse_spec({"load": {"scenario": "steady"}, **asked}), home)[1] == []
    waves = {"scenario": "waves", "options": {"waves": [{"streamed": True, "requests": "9+9"}]}}
    assert prepare(parse_spec({"load": waves, **asked}), home)[1] == []


NOWHERE = {"pool_pages": 32, "args": ["--max-running-requests", "1"]}


def test_coverage_is_not_asked_for_where_nothing_can_be_covered(home: Home) -> None:
    until = faults(home, engine=NOWHERE, load={"until_coverage": "90%"})["load.until_coverage"]
    assert until.value == 0.9 and "no step at the edge can be reached" in until.message
    threshold = faults(home, engine=NOWHERE, thresholds=["coverage.share >= 10%"])["thresholds"]
    assert threshold.value == "coverage.share >= 0.1"
    bare = {"load": {"scenario": "steady", "until_coverage": "90%"}}
    for spec in ({"engine": NOWHERE}, {"load": {"until_coverage": "90%"}}, bare):
        assert prepare(parse_spec(spec), home)[1] == []


def test_settings_of_a_simulated_engine_that_cannot_be_are_a_fault(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SIMULATION_VARIABLE, '{"evnts": []}')
    found = faults(home, engine={"name": "simulated"})
    assert "'evnts' is no setting of a simulated engine" in found["engine.name"].message


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--max-running-requests", "-5"], "--max-running-requests -5 is no number of batch rows; allowed: 1 or more"),
        (["--max-running-req=many"], "--max-running-requests many is no number of batch rows"),
        (["--chunked-prefill-size", "100"], "--chunked-prefill-size 100 is no size of a prefill; allowed: whole pages"),
    ],
)
def test_a_number_with_which_no_server_starts_is_refused(home: Home, args: list[str], message: str) -> None:
    assert message in faults(home, engine={"args": args})["engine.args"].message


def test_numbers_with_which_a_server_starts_are_borne(home: Home) -> None:
    args = ["--max-running-requests", "1", "--chunked-prefill-size", "-1"]
    prepared, found = prepare(parse_spec({"engine": {"args": args}}), home)
    assert prepared is not None and not found
