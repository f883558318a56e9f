"""Claims about the coverage that a run tells: complete when it has ended, and then read back as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.coverage import Cell, Coverage
from loadgen.sglang.pages import Pool
from loadgen.sglang.releases import RELEASES, rules_for
from loadgen.sglang.server import ServerConfiguration
from service.execution.recording import Recording
from service.plugin.recorder import FlightRecorder
from service.runs.coverage import EdgeCoverage, edge_coverage, read_back
from service.spec.fraction import parse_fraction
from service.spec.parsing import parse_spec

SERVER = ServerConfiguration(Pool(128, 32), overlap=False, prefix_cache=True, max_running_requests=20)


def covered() -> Coverage:
    coverage = Coverage(SERVER)
    steps = {"tight 1 8 4 running_rows decode": 3, "one_over 2 8 0 running_rows prefill": 2}
    coverage.add({Cell.parse(text): count for text, count in steps.items()})
    coverage.add({Cell.parse("tight 1 1 0 running_rows decode"): 1})
    return coverage


def test_a_run_tells_every_cell_with_its_steps_and_the_near_ones_apart() -> None:
    told = edge_coverage(covered(), SERVER, cells=True)
    assert told.tight == {"tight 1 1 0 running_rows decode": 1, "tight 1 8 4 running_rows decode": 3}
    assert told.near == {"one_over 2 8 0 running_rows prefill": 2}
    assert told.unforeseen_cells == {"tight 1 1 0 running_rows decode": 1}
    assert (told.hit, told.unforeseen) == (1, 1)
    assert told.share == 1 / told.reachable


def test_the_shares_by_what_came_before_add_up_to_the_whole() -> None:
    told = edge_coverage(covered(), SERVER, cells=True)
    assert set(told.after) == {"retraction", "eviction", "prefill", "decode"}
    assert sum(share.hit for share in told.after.values()) == told.hit
    assert sum(share.reachable for share in told.after.values()) == told.reachable


def test_while_a_run_goes_on_it_tells_no_single_cells() -> None:
    told = edge_coverage(covered(), SERVER, cells=False)
    assert (told.tight, told.near, told.unforeseen_cells) == ({}, {}, {})
    assert told.hit == 1


def test_a_told_coverage_is_read_back_as_it_was() -> None:
    coverage = covered()
    told = EdgeCoverage.model_validate_json(edge_coverage(coverage, SERVER, cells=True).model_dump_json())
    back = read_back(told)
    assert (back.hits, back.reachable, back.unforeseen) == (coverage.hits, coverage.reachable, coverage.unforeseen)
    assert back.share == coverage.share


@pytest.mark.parametrize("release", RELEASES.different)
def test_a_coverage_is_read_back_with_the_rules_of_its_release(release: str) -> None:
    server = replace(SERVER, overlap=True, rules=rules_for(release).rules)
    told = EdgeCoverage.model_validate_json(edge_coverage(Coverage(server), server, cells=True).model_dump_json())
    assert told.server.rules == release and told.server.configuration() == server
    assert read_back(told).reachable == Coverage(server).reachable


def test_every_step_that_a_run_takes_is_counted(tmp_path: Path, writer: FlightRecorder) -> None:
    recording = Recording(tmp_path / "flight.bin", SERVER)
    writer.count("evicted_pages", 2)
    writer.enter(8, 1, 1, 4)
    writer.enter(8, 1, 3, 4)
    recording.take()
    writer.enter(8, 1, 1, 4)
    recording.take()
    assert recording.coverage is not None
    assert {str(cell): steps for cell, steps in recording.coverage.hits.items()} == {
        "tight 1 8 4 prefix_cache eviction": 1,
        "tight 1 8 4 running_rows decode": 1,
    }


@given(st.floats(0, 1, exclude_min=True))
def test_a_share_is_a_number_or_a_percentage(share: float) -> None:
    assert parse_fraction(share) == parse_fraction(str(share)) == share
    assert parse_fraction(f"{100 * share!r}%") == pytest.approx(share)


@pytest.mark.parametrize("value", [0, -0.1, 1.1, "0%", "101%", "much", "%", "nan", True, None, [], "9" * 200])
def test_what_is_no_share_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="not a share; allowed: a number above 0 and up to 1, or a percentage"):
        parse_fraction(value)


def test_who_asks_for_a_coverage_has_a_threshold_on_it() -> None:
    spec = parse_spec({"load": {"until_coverage": "90%"}})
    assert spec.load.until_coverage == 0.9
    assert "coverage.share >= 0.9" in spec.thresholds
    assert parse_spec(spec.model_dump(mode="json")) == spec
    own = parse_spec({"load": {"until_coverage": 0.9}, "thresholds": ["coverage.share >= 50%"]})
    assert [text for text in own.thresholds if "coverage" in text] == ["coverage.share >= 0.5"]
    assert not any("coverage" in text for text in parse_spec({}).thresholds)
