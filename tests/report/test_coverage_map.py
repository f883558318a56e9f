"""Claims about the picture of the edge: what cannot exist, what was not hit and what was are told apart."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ElementTree
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from loadgen.coverage import Cell, Coverage
from loadgen.sglang.pages import Pool
from loadgen.sglang.server import ServerConfiguration
from service.report.coverage_map import coverage_svg, coverage_view, write_coverage_map
from service.runs.coverage import edge_coverage
from service.runs.folder import COVERAGE_FILE
from service.runs.model import Measures, Run
from service.spec.parsing import parse_spec

SERVER = ServerConfiguration(Pool(128, 8), overlap=False)


def run_in(folder: Path, measures: Measures) -> Run:
    return Run(
        id="r",
        spec=parse_spec({}),
        folder=folder,
        created_at=datetime(2026, 11, 30, tzinfo=timezone.utc),
        measures=measures,
    )


def covered(*cells: str) -> Coverage:
    coverage = Coverage(SERVER)
    coverage.add({Cell.parse(cell): 5 for cell in cells})
    return coverage


def text_of(coverage: Coverage, **more: object) -> str:
    console = Console(file=io.StringIO(), width=150, **more)  # type: ignore[arg-type]
    console.print(coverage_view(coverage))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_table_counts_cells_and_steps_by_dimension() -> None:
    text = text_of(covered("tight 1 4 2 running_rows decode", "one_over 1 4 2 running_rows decode"))
    coverage = covered()
    reachable = len(coverage.reachable_tight)
    assert f"1 of {reachable} tight cells, in 5 steps" in text
    decode = sum(cell.after == "decode" for cell in coverage.reachable_tight)
    assert re.search(rf"right after\s+a decode step\s+1\s+{decode}\s+\d+%\s+5\b", text)
    assert re.search(r"one page over: 1 of \d+ cells, in 5 steps", text)


def test_cells_that_cannot_exist_look_unlike_those_not_hit_and_those_hit() -> None:
    text = text_of(covered("tight 1 4 2 running_rows decode"), force_terminal=True, color_system="truecolor")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert {"·", "0/4", "1/4"} <= set(re.findall(r"·|\d/\d", plain))
    styles = {shown: style for style, shown in re.findall(r"\x1b\[([0-9;]+)m *((?:·|\d+/\d+))", text)}
    assert len({styles["·"], styles["0/4"], styles["1/4"]}) == 3


def test_a_cell_hit_though_thought_unreachable_is_named() -> None:
    text = text_of(covered("tight 1 1 0 running_rows decode"))
    assert "hit though thought unreachable: 1 cells" in text
    assert "tight 1 1 0 running_rows decode (5 steps)" in text


@given(st.integers(2, 40), st.booleans(), st.booleans(), st.floats(0, 1))
@settings(max_examples=10, deadline=None)
def test_whatever_was_covered_can_be_shown(pages: int, overlap: bool, prefix_cache: bool, share: float) -> None:
    coverage = Coverage(ServerConfiguration(Pool(128, pages), overlap=overlap, prefix_cache=prefix_cache))
    cells = sorted(coverage.reachable)
    coverage.add(dict.fromkeys(cells[: round(share * len(cells))], 1))
    assert f"coverage {coverage.share:.1%}" in text_of(coverage)


def test_the_picture_is_whole_and_refers_to_no_other_host() -> None:
    picture = coverage_svg(covered("tight 1 4 2 running_rows decode"), "title & more")
    ElementTree.fromstring(picture)
    assert set(re.findall(r"https?://[^\s\"'<)]+", picture)) == {"http://www.w3.org/2000/svg"}
    assert "1/4" in picture


@pytest.mark.parametrize("cells", [True, False])
def test_a_run_that_covered_something_has_its_picture(cells: bool, tmp_path: Path) -> None:
    told = edge_coverage(covered("tight 1 4 2 running_rows decode"), SERVER, cells=cells)
    write_coverage_map(run_in(tmp_path, Measures(coverage=told)))
    assert (tmp_path / COVERAGE_FILE).exists() is cells


def test_a_run_whose_load_never_began_has_none(tmp_path: Path) -> None:
    write_coverage_map(run_in(tmp_path, Measures()))
    assert not (tmp_path / COVERAGE_FILE).exists()
