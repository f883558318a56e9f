"""Claims about `lastpage coverage`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from loadgen.coverage import Cell, Coverage, Relation
from loadgen.sglang.pages import Pool
from loadgen.sglang.server import ServerConfiguration
from service.cli.main import app
from service.report.json_report import write_report
from service.runs.coverage import edge_coverage
from service.runs.model import Measures, Run
from service.spec.parsing import parse_spec

SERVER = ServerConfiguration(Pool(128, 4), overlap=False)
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


def test_a_run_is_not_counted_twice(tmp_path: Path) -> None:
    run = run_that_hit(tmp_path / "a", TIGHT)
    refused = shown(run, run / "report.json")
    assert refused.exit_code == 2
    assert "this run was given before" in refused.output


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


def damaged(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    run = run_that_hit(folder, TIGHT)
    report = json.loads((run / "report.json").read_text())
    change(report["measures"]["coverage"])
    (run / "report.json").write_text(json.dumps(report))
    return run


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda told: told["tight"].update({str(TIGHT[0]): -5}), "running_rows decode = -5: must be"),
        (lambda told: told["server"].update(pool_pages=0), "coverage.server.pool_pages = 0"),
        (lambda told: told["server"].update(pool_pages=-5), "coverage.server.pool_pages = -5"),
        (lambda told: told["server"].update(pool_pages=10**30, max_running_requests=10**30), "server.pool_pages"),
        (lambda told: told["server"].update(page_size=0), "coverage.server.page_size = 0"),
        (lambda told: told["server"].update(max_running_requests=-1), "server.max_running_requests = -1"),
        (lambda told: told.update(share=1.5), "coverage.share = 1.5"),
        (lambda told: told["tight"].update({"tight 1 0 0 running_rows decode": 1}), "has not so many rows"),
        (lambda told: told["tight"].update({"tight 1 1024 0 running_rows decode": 1}), "more rows than the pool"),
        (lambda told: told["tight"].update({"one_over 1 2 0 running_rows decode": 1}), "among the tight cells"),
        (lambda told: told["near"].update({str(TIGHT[0]): 1}), "among the cells one page over or under"),
    ],
)
def test_a_report_with_numbers_that_cannot_be_is_refused_with_its_faults(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], told: str
) -> None:
    result = shown(damaged(tmp_path / "a", change))
    assert (result.exit_code, "damaged" in result.output) == (2, True)
    assert told in result.output


def test_what_nests_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text("[" * 100_000)
    result = shown(tmp_path)
    assert (result.exit_code, "nested too deeply" in result.output) == (2, True)


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    report = run_that_hit(tmp_path / "a", TIGHT) / "report.json"
    report.write_text(report.read_text(encoding="utf-8"), encoding="utf-8-sig")
    assert shown(report).exit_code == 0


def test_only_regular_files_of_bounded_size_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        result = shown(path)
        assert (result.exit_code, "not a regular file" in result.output) == (2, True)
    run = run_that_hit(tmp_path / "a", TIGHT)
    monkeypatch.setattr("service.files.MOST_BYTES", 100)
    assert "is larger than" in shown(run).output


def test_the_picture_replaces_no_device_no_link_and_no_report(tmp_path: Path) -> None:
    run = run_that_hit(tmp_path / "a", TIGHT)
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null"), tmp_path):
        result = shown(run, "--svg", path)
        assert (result.exit_code, "not a regular file" in result.output) == (2, True)
    assert (tmp_path / "pipe").is_fifo() and Path("/dev/null").is_char_device()
    (tmp_path / "link.svg").symlink_to("edge.svg")
    assert shown(run, "--svg", tmp_path / "link.svg").exit_code == 0
    assert (tmp_path / "link.svg").is_symlink() and (tmp_path / "edge.svg").read_text().startswith("<svg")
    assert "the report that is shown" in shown(run, "--svg", run / "report.json").output
    assert shown(run).exit_code == 0
