"""Claims about docs/peers.md: shares are of decode steps, and what was measured is not measured again."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers import Measured, Row, launch_text, page
from loadgen.sglang.server import EngineNeeds

ROW = Row("bench_serving", "SGLang's defaults", 4000, 100, 3, 2, 1)


def test_critical_steps_are_told_per_thousand_decode_steps() -> None:
    assert ROW.critical_per_thousand == 0.5
    assert Row("none", "", 0, 0, 0, 0, 0).critical_per_thousand == 0.0


def test_the_page_has_a_line_a_load_with_its_launch() -> None:
    lines = page([ROW], "0.5.23", "2 cores", "2026-11-30").splitlines()
    assert "| bench_serving | 4,000 | 100 | 3 | 2 | **0.5** | 1 | SGLang's defaults |" in lines
    assert {line.count("|") for line in lines if line.startswith("|")} == {9}
    assert any("--random-input-len 400" in line for line in lines)


def test_a_launch_is_told_with_its_environment() -> None:
    needs = EngineNeeds(("--schedule-conservativeness", "0"), {"SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION": "1"})
    assert launch_text(needs) == "`SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION=1 --schedule-conservativeness 0`"
    assert launch_text(EngineNeeds()) == "SGLang's defaults"


def test_a_row_that_was_measured_is_taken_up_and_a_broken_one_is_not(tmp_path: Path) -> None:
    Measured(tmp_path).add("one", ROW)
    (tmp_path / "half.json").write_text('{"load": "half')
    (tmp_path / "deep.json").write_text("[" * 100_000)
    again = Measured(tmp_path)
    assert [again.known(key) for key in ("one", "half", "deep", "other")] == [True, False, False, False]
    assert again.rows == [ROW]
    again.add("half", ROW)
    assert (tmp_path / "half.json.1").read_text() == '{"load": "half'
