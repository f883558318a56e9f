"""Claims about run specs."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from service.plugin.settings import Allocator
from service.spec.duration import format_duration, parse_duration
from service.spec.faults import Fault, InvalidSpec
from service.spec.parsing import parse_spec
from service.spec.spec import MAX_SEED, RunSpec
from service.spec.yaml_text import dump_yaml, load_yaml


def faults(data: Any) -> dict[str, Fault]:
    with pytest.raises(InvalidSpec) as caught:
        parse_spec(data)
    return {fault.field: fault for fault in caught.value.faults}


def test_the_empty_spec_is_the_default_soak() -> None:
    for empty in ({}, None):
        spec = parse_spec(empty)
        assert (spec.engine.page_size, spec.engine.pool_pages) == (128, 32)
        assert spec.engine.allocator is Allocator.INSTALLED
        assert (spec.load.scenario, spec.load.duration) == ("tight", 60.0)
        nothing_wrong = ("crashes == 0", "failed_requests == 0", "findings == 0")
        assert spec.thresholds == (*nothing_wrong, "critical_steps >= 100")


def test_every_fault_is_told_at_once_with_its_field_and_value() -> None:
    found = faults({"engine": {"page_size": 1, "port": 0}, "load": {"duration": "soon", "seed": -1}, "labels": 3})
    assert set(found) == {"engine.page_size", "engine.port", "load.duration", "load.seed", "labels"}
    assert found["engine.page_size"].value == 1
    assert "greater than or equal to 2" in found["engine.page_size"].message
    assert "1h30m" in found["load.duration"].message


@pytest.mark.parametrize(
    ("data", "field", "message"),
    [
        ({"thresholds": "critical_share >= 80%"}, "thresholds", "not a list; write one, as in [critical_share >= 80%]"),
        ({"engine": {"args": "--tp 2"}}, "engine.args", "not a list; write one, as in [--tp, 2]"),
        ({"name": 0.5}, "name", "not a text; put it in quotes"),
        ({"engine": 3}, "engine", "not a mapping; write keys with values, as in {key: value}"),
        ({"thresholds": ["x"]}, "thresholds", "'x' is no threshold; write MEASURE"),
    ],
)
def test_faults_speak_of_the_spec_and_not_of_python(data: Any, field: str, message: str) -> None:
    assert faults(data)[field].message.startswith(message)


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"name": "a\ud800"}, "name"),
        ({"labels": {"a": "\ud800"}}, "labels.a"),
        ({"labels": {"\udfff": "a"}}, "labels.?"),
        ({"engine": {"args": ["--x", "\ud800"]}}, "engine.args.1"),
        ({"load": {"options": {"deep": [{"a": "\ud800"}]}}}, "load.options.deep.0.a"),
        ({"waivers": [{"reason": "\ud800"}]}, "waivers.0.reason"),
        ({"thresholds": ["\ud800"]}, "thresholds.0"),
    ],
)
def test_text_that_no_file_can_hold_is_refused_by_its_field(data: Any, field: str) -> None:
    assert "Unicode text" in faults(data)[field].message


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), date(2026, 2, 3), 16**5000, b"x", {1: 2}],
    ids=lambda value: type(value).__name__,
)
def test_an_option_that_json_does_not_have_is_refused_by_the_name_that_it_has_in_the_file(value: Any) -> None:
    inside = ".1" if isinstance(value, dict) else ""
    assert set(faults({"load": {"options": {"queue": value}}})) == {f"load.options.queue{inside}"}
    assert set(faults({"load": {"options": {"a": [{"b": value}]}}})) == {f"load.options.a.0.b{inside}"}


def test_more_values_than_any_spec_holds_are_one_fault() -> None:
    assert "more than 10,000 values" in faults({"labels": {str(n): "x" for n in range(10_001)}})[""].message
    assert "more than 10,000 values" in faults({"load": {"options": {"waves": [{}] * 10_001}}})[""].message


def test_whatever_a_fault_says_can_be_sent_and_read() -> None:
    fault = Fault(field="\ud800", value="\ud800", message="\ud800 " + "7" * 900)
    fault.model_dump_json().encode()
    assert fault.message.endswith("7777…") and len(fault.message) < 100


def test_minutes_and_seconds_with_a_colon_are_not_taken_for_a_number(tmp_path: Path) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text("load: {duration: 90:00, seed: 0x10}")
    data = load_yaml(file)
    assert data == {"load": {"duration": "90:00", "seed": 16}}
    assert "not a duration" in faults(data)["load.duration"].message


def test_an_unknown_field_is_told_with_the_allowed_ones() -> None:
    assert "allowed: name, allocator, model" in faults({"engine": {"pagesize": 1}})["engine.pagesize"].message
    assert "allowed: name, labels, engine, load" in faults({"duration": 1})["duration"].message


@pytest.mark.parametrize("data", [[], "tight", 3, [{"engine": {}}]])
def test_what_is_no_mapping_is_no_spec(data: Any) -> None:
    assert "" in faults(data)


@pytest.mark.parametrize(
    "duration", [0, -1, "0s", float("inf"), float("nan"), 10**400, "1" * 12_000, "31d", True, [], "5 fortnights", ""]
)
def test_a_duration_that_cannot_be_is_refused(duration: Any) -> None:
    assert set(faults({"load": {"duration": duration}})) == {"load.duration"}


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (60, 60),
        ("60", 60),
        ("60s", 60),
        ("5m", 300),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("1 d", 86400),
        ("500ms", 0.5),
        ("10min", 600),
    ],
)
def test_durations_are_read_as_people_write_them(written: Any, seconds: float) -> None:
    assert parse_spec({"load": {"duration": written}}).load.duration == seconds


@given(st.integers(min_value=1, max_value=30 * 86400))
def test_a_formatted_duration_reads_back_as_the_same(seconds: int) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


def test_the_edge_requirement_cannot_be_turned_off() -> None:
    for threshold in ("critical_steps >= 0", "critical_steps > -1", "critical_steps <= 5", "critical_share >= 0%"):
        assert parse_spec({"thresholds": ["tight_steps > 0", threshold]})
    assert "lower bound" in faults({"thresholds": ["critical_steps >= 0"]})["thresholds"].message
    assert "lower bound" in faults({"thresholds": ["critical_steps >= 0", "decode_steps >= 9"]})["thresholds"].message


def test_a_default_threshold_stays_until_one_on_the_same_measure_replaces_it() -> None:
    spec = parse_spec({"thresholds": ["critical_share >= 80%", "crashes <= 2"]})
    assert set(spec.thresholds) == {
        "failed_requests == 0",
        "findings == 0",
        "critical_steps >= 100",
        "critical_share >= 0.8",
        "crashes <= 2",
    }


def test_text_with_a_nul_is_refused_where_it_would_reach_a_command_line() -> None:
    found = faults({"engine": {"name": "a\0", "model": "\0", "args": ["--x", "\0"]}})
    assert set(found) == {"engine.name", "engine.model", "engine.args.1"}


def test_numbers_among_the_arguments_are_words() -> None:
    assert parse_spec({"engine": {"args": ["--tp", 2, 0.5]}}).engine.args == ("--tp", "2", "0.5")
    assert set(faults({"engine": {"args": "--tp 2"}})) == {"engine.args"}


specs = st.builds(
    lambda page_size, pool, seed, duration, args, name: {
        "name": name,
        "engine": {"page_size": page_size, "pool_pages": pool, "args": args},
        "load": {"seed": seed, "duration": duration, "options": {"k": [1, None, "x"]}},
    },
    st.integers(2, 4096),
    st.integers(2, 10_000),
    st.none() | st.integers(0, MAX_SEED),
    st.floats(0.001, 86400, allow_nan=False),
    st.lists(st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"]), min_size=1)),
    st.none() | st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"]), min_size=1, max_size=120),
)


@given(specs)
def test_a_spec_written_as_yaml_or_json_reads_back_as_the_same(data: dict[str, Any]) -> None:
    spec = parse_spec(data)
    assert parse_spec(yaml.safe_load(dump_yaml(spec))) == spec
    assert RunSpec.model_validate_json(spec.model_dump_json()) == spec


def test_a_spec_file_that_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    file = tmp_path / "spec.yaml"
    for text in ("a: [1", "load: {seed: 1}\nload: {seed: 2}\n", "a: !!python/object:os.system {}", "? [1]\n: 2\n"):
        file.write_text(text)
        with pytest.raises(InvalidSpec):
            parse_spec(load_yaml(file))
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidSpec):
        load_yaml(file)
    with pytest.raises(InvalidSpec, match="there is no such file"):
        load_yaml(tmp_path / "none.yaml")
    with pytest.raises(InvalidSpec):
        load_yaml(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "name: 2026-02-30",
        "load: {seed: 0b_}",
        "name: !!int abc",
        "name: !!timestamp abc",
        "load: {seed: " + "1" * 5000 + "}",
        "[" * 1200,
        "labels: &a {x: *a}",
        "a: " + "[" * 30 + "]" * 30,
        "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}' if n else 'x'] * 10)}]" for n in range(10)),
    ],
)
def test_what_no_spec_can_hold_is_a_fault_of_the_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text(text)
    with pytest.raises(InvalidSpec, match="not YAML"):
        load_yaml(file)


def test_absent_thresholds_are_the_default_ones() -> None:
    assert parse_spec({"thresholds": None}) == RunSpec()


def test_a_value_in_a_fault_is_cut_short() -> None:
    assert Fault(field="", value="x" * 9999, message="").value == "x" * 200 + "…"
    holds_itself: dict[str, Any] = {}
    holds_itself["x"] = holds_itself
    for value in ("x" * 9999, ["x" * 150] * 99, {str(n): n for n in range(99)}, 10**400, holds_itself):
        fault = Fault(field="", value=value, message="")
        assert len(json.dumps(fault.value, ensure_ascii=False)) <= 210


def test_an_empty_spec_file_is_the_default_soak(tmp_path: Path) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text("# nothing\n")
    assert parse_spec(load_yaml(file)) == RunSpec()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
sections = st.dictionaries(st.sampled_from(sorted(RunSpec.model_fields)), json_values)
details = st.dictionaries(
    st.sampled_from(["engine", "load"]),
    st.dictionaries(st.sampled_from(["name", "page_size", "args", "port", "duration", "seed", "options"]), json_values),
)


@given(json_values | sections | details)
def test_whatever_is_given_is_a_spec_or_named_faults_that_json_can_carry(data: Any) -> None:
    try:
        parse_spec(data)
    except InvalidSpec as error:
        assert error.faults
        for fault in error.faults:
            json.dumps(fault.model_dump(mode="json"), ensure_ascii=False, allow_nan=False).encode()
            assert fault.message
