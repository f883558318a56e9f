"""Claims about the registry of measures: what follows from it, and that nobody else keeps a list."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadgen.driver import Tally
from service.execution.measuring import histograms_of
from service.execution.recording import Recording
from service.measures import BOUNDED, COUNTED, COVERAGE_SHARE, DISTRIBUTIONS, MEASURES
from service.monitoring.series import SERIES
from service.plugin.flight import STEP_FIELDS, Totals
from service.plugin.flight_format import ERROR_OFFSET, TOTALS, TOTALS_OFFSET, TOTALS_STRUCT
from service.plugin.measures import RECORDED, MeasureKind, Shown
from service.plugin.recorder import FlightRecorder
from service.report.measures_page import page
from service.runs.model import Measures

ROOT = Path(__file__).resolve().parents[1]
COUNTERS = frozenset(measure.name for measure in RECORDED)

WORDS = {"decode_steps", "exceptions"}
"""Counters whose names are words for other things too: a request has decode steps of its own."""

READERS = {
    "loadgen/checks/fairness.py": "whether the scheduler works while a request waits",
    "loadgen/coverage/cells.py": "which cell a step falls in",
    "loadgen/scenarios/mixed.py": "whether a step is what the model told",
    "loadgen/scenarios/prefix.py": "whether a step is what the model told",
    "loadgen/scenarios/tight/carousel.py": "whether the carousel turns as foreseen",
    "loadgen/sglang/scheduler/prefix_cache.py": "the model of the prefix cache evicts",
    "loadgen/sglang/scheduler/scheduler.py": "the model of the scheduler makes steps",
    "loadgen/sglang/steps.py": "what the load reads of a step",
    "service/plugin/flight.py": "the record of a step",
    "service/plugin/measures.py": "the registry",
    "service/plugin/probe.py": "counted here",
    "service/plugin/recorder.py": "counted here",
    "service/spec/spec.py": "an example of a threshold",
    "service/spec/thresholds.py": "the default threshold",
    "service/execution/repro.py": "the threshold of a reproduction",
    "service/cli/main.py": "an option for the default threshold",
    "service/report/coverage_map.py": "tight steps of each cell",
    "service/report/measures_page.py": "what schema 2 renamed",
    "service/report/spec_page.py": "an example of a threshold",
    "service/runs/model.py": "shares are computed",
    "service/runs/verdict.py": "the sentence of a verdict",
    "service/execution/inspection.py": "what the fairness check is told",
    "service/execution/watch.py": "whether the engine works",
    "service/report/table.py": "rows that say more than a count: shares, a rate",
    "service/cli/console.py": "the live view shows the steps of each kind",
    "service/simulation/engine.py": "the simulated engine counts here",
    "dashboards/engine.py": "panels",
    "dashboards/pool_pressure.py": "panels",
    "dashboards/soak_overview.py": "panels",
    "benchmarks/peers.py": "columns of docs/peers.md",
    "benchmarks/scenario_table.py": "columns of docs/scenarios.md",
}
"""Every file that names a counter, with the reason: it takes it, or does something with its value."""


def test_the_report_has_each_measure_of_the_registry_and_no_other_with_its_description() -> None:
    fields = {name: field.description for name, field in Measures.model_fields.items()}
    computed = {name: field.description for name, field in Measures.model_computed_fields.items()}
    in_the_report = MEASURES.keys() - {measure.name for measure in DISTRIBUTIONS} - {COVERAGE_SHARE}
    assert fields | computed == {name: MEASURES[name].help for name in in_the_report}


def test_the_schema_of_the_interface_says_what_each_counter_is() -> None:
    properties = Measures.model_json_schema(mode="serialization")["properties"]
    for measure in RECORDED:
        assert (properties[measure.name]["type"], properties[measure.name]["description"]) == ("integer", measure.help)


def test_the_recording_holds_each_counter_and_when_the_last_step_was() -> None:
    assert TOTALS == (*(measure.name for measure in RECORDED), "last_step_ns") == tuple(Totals.__dataclass_fields__)
    assert TOTALS_OFFSET + TOTALS_STRUCT.size <= ERROR_OFFSET


def test_what_a_step_keeps_of_counters_is_counted() -> None:
    assert {field.name for field in STEP_FIELDS if field.counted} <= COUNTERS


def test_a_count_that_is_no_counter_is_refused(tmp_path: Path) -> None:
    recorder = FlightRecorder(tmp_path / "f", page_size=1, pool_pages=1, sglang_version="", allocator="", capacity=1)
    with pytest.raises(KeyError, match="made_up"):
        recorder.count("made_up")


def test_names_are_those_of_one_measure_each_and_parts_are_parts_of_counts() -> None:
    assert len({measure.words for measure in COUNTED}) == len(COUNTED)
    assert all(MEASURES[measure.share_of].kind is MeasureKind.COUNT for measure in RECORDED if measure.share_of)
    assert all(measure.help.endswith(".") for measure in MEASURES.values())
    assert {"critical_steps", "tight_steps", "critical_share", "tight_share"} == {
        name for name, measure in BOUNDED.items() if measure.proves_exhaustion
    }


def test_every_counter_has_a_series_in_both_metrics_and_a_row_where_it_is_shown() -> None:
    assert set(RECORDED) <= set(COUNTED)
    assert {measure.name for measure in COUNTED} <= SERIES.keys()
    told_otherwise = {measure.name for measure in COUNTED if measure.shown is Shown.ELSEWHERE}
    assert told_otherwise == {
        *("decode_steps", "crossing_steps", "tight_steps", "clamped_steps", "critical_steps", "prefill_batches"),
        *("crashes", "findings", "waived_findings"),
    } & {measure.name for measure in COUNTED}


def test_every_distribution_is_measured_with_the_bounds_of_the_registry(tmp_path: Path) -> None:
    recorder = FlightRecorder(tmp_path / "f", page_size=1, pool_pages=1, sglang_version="", allocator="", capacity=1)
    measured = histograms_of(Recording(tmp_path / "f"), Tally())
    assert {name: counts.bounds for name, counts in measured.items()} == {
        measure.name: measure.bounds for measure in DISTRIBUTIONS
    }
    assert recorder.totals() == Totals()


def test_the_page_in_docs_is_what_the_registry_says() -> None:
    assert (ROOT / "docs/measures.md").read_text() == page(), "`make measures` writes it anew"


def code_words(tree: ast.Module) -> Iterator[str]:
    """Names, attributes and strings of a module, without its docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, (ast.arg, ast.keyword)):
            yield node.arg or ""
        elif isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def test_no_file_names_a_counter_but_those_that_take_it_or_decide_something_by_it() -> None:
    counter = re.compile(rf"\b(lastpage_)?({'|'.join(COUNTERS - WORDS)})(_total)?\b")
    naming = {
        str(path.relative_to(ROOT))
        for folder in ("service", "loadgen", "dashboards", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
        if any(counter.search(word) for word in code_words(ast.parse(path.read_text())))
    }
    assert naming == READERS.keys()


def test_a_counter_that_decides_nothing_is_named_where_it_is_taken_described_and_drawn_and_nowhere_else() -> None:
    """So is the next one, and it need not be drawn."""
    naming = {
        str(path.relative_to(ROOT))
        for folder in ("service", "loadgen", "dashboards", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
        if "shortfalls" in path.read_text()
    }
    assert naming == {"service/plugin/recorder.py", "service/plugin/measures.py", "dashboards/pool_pressure.py"}
