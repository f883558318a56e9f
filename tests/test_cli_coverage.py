"""Claims about `lastpage coverage`."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from loadgen.coverage import Cell, Coverage, Relation
from loadgen.pages import Pool
from loadgen.scenarios import ServerTraits
from service.cli import app
from service.report.json_report import write_report
from service.runs.coverage import edge_coverage
from service.runs.model import Measures, Run
from service.runs.spec import parse_spec

SERVER = ServerTraits(Pool(128, 4), overlap=False)
TIGHT = sorted(cell for cell in Coverage(SERVER).reachable if cell.relation is Relation.TIGHT)


def run_that_hit(folder: Path, cells: list[Cell]) -> Path:
    coverage = Coverage(SERVER)
    coverage.add(dict.fromkeys(cells, 2))
    measures = Measures(coverage=edge_coverage(coverage, SERVER, cells=True))
    folder.mkdir()
    at = datetime(2026, 11, 30, tzinfo=timezone.utc)
    write_report(Run(id=folder.name, spec=parse_spec({}), folder=folder, created_at=at, measures=measures))
    return folder


def shown(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["coverage", *map(str, arguments)])


def test_of_several_runs_it_shows_what_they_hit_together(tmp_path: Path) -> None:
    first, second = run_that_hit(tmp_path / "a", TIGHT[:4]), run_that_hit(tmp_path / "b", TIGHT[3:])
    alone = shown(first)
    assert f"4 of {len(TIGHT)} tight cells, in 8 steps" in alone.output
    together = shown(first, second / "report.json")
    assert f"coverage 100.0%: {len(TIGHT)} of {len(TIGHT)} tight cells" in together.output
    assert str(first) in together.output


def test_too_small_a_share_exits_3(tmp_path: Path) -> None:
    run = run_that_hit(tmp_path / "a", TIGHT[: len(TIGHT) // 2])
    assert shown(run).exit_code == 0
    assert shown(run, "--min-share", "50%").exit_code == 0
    refused = shown(run, "--min-share", "0.9")
    assert refused.exit_code == 3
    assert "50.0% is less than 90.0%" in refused.output


def test_the_picture_goes_where_it_is_asked_for(tmp_path: Path) -> None:
    run = run_that_hit(tmp_path / "a", TIGHT)
    assert shown(run, "--svg", tmp_path / "edge.svg").exit_code == 0
    assert (tmp_path / "edge.svg").read_text().startswith("<svg")
    assert "cannot be written" in shown(run, "--svg", tmp_path / "nowhere" / "edge.svg").output


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "report.json cannot be read: No such file"),
        ("{", "no report of a run"),
        ("[]", "no report of a run"),
        (json.dumps({"measures": {"coverage": None}}), "its report has no coverage"),
        (json.dumps({"measures": {"coverage": {"share": 1}}}), "no report of a run"),
    ],
)
def test_what_is_no_report_of_a_run_with_coverage_is_refused(content: str | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "report.json").write_text(content)
    result = shown(tmp_path)
    assert result.exit_code == 2
    assert message in result.output


def test_no_share_is_refused(tmp_path: Path) -> None:
    result = shown(run_that_hit(tmp_path / "a", TIGHT), "--min-share", "200%")
    assert (result.exit_code, "not a share" in result.output) == (2, True)
