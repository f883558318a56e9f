"""A real run tells which cells of the edge it has been through, and ends when it was asked for no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadgen.coverage import Coverage
from service.plugin.flight_reader import FlightReader
from service.runs.coverage import EdgeCoverage
from tests.real.soaks import soak

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]


def test_a_tight_run_ends_when_it_has_covered_enough_and_tells_its_cells(tmp_path: Path) -> None:
    # `tight` knows one shape of step, so its cells are few: one of 224 is more than this.
    ended = soak(
        *(tmp_path / "run", "--engine", "0.5.23", "--until-coverage", "0.4%", "--min-critical", "1"),
        *("--duration", "120s", "--seed", "11"),
    )
    measures = ended.report["measures"]
    assert (ended.exit_code, ended.report["verdict"]) == (0, "pass"), ended.output
    assert measures["seconds_under_load"] < 60
    told = EdgeCoverage.model_validate(measures["coverage"])
    assert told.share >= 0.004
    assert told.unforeseen == 0, told.unforeseen_cells
    assert sum(told.tight.values()) == measures["tight_steps"]
    assert (ended.folder / "coverage.svg").stat().st_size > 0
    assert f"{told.hit} of {told.reachable} tight cells" in ended.output

    # The recording holds the readiness probe's steps, too, and those after the load.
    coverage = Coverage(told.server.configuration())
    coverage.observe_all(FlightReader(ended.folder / "flight.bin").steps())
    assert {str(cell) for cell in coverage.hits} >= set(told.tight)
