"""Claims about what is printed for people."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from service.engine.check import EngineCheck
from service.engine.installation import Engine
from service.plugin.flight import AllocationOutcome
from service.plugin.flight_reader import FlightReader
from service.plugin.recorder import FlightRecorder
from service.report.flight_table import LoadSteps, load_beside, print_flight
from service.report.listings import print_check
from service.report.table import print_result, short_detail
from service.runs.model import EngineRules, Measures
from tests.report.test_json_report import crashed


def printed(width: int = 100) -> tuple[Console, io.StringIO]:
    stream = io.StringIO()
    return Console(file=stream, width=width, highlight=False), stream


def test_a_result_tells_verdict_reason_crash_and_where_the_files_are(tmp_path: Path) -> None:
    (tmp_path / "report.json").touch()
    (tmp_path / "notes.txt").touch()
    (tmp_path / ".report.json.1.partial").touch()
    console, stream = printed(width=60)
    print_result(console, crashed(tmp_path))
    text = stream.getvalue()
    assert "\x1b" not in text, "no control codes where there is no terminal"
    assert "verdict  FAIL" in text
    assert "crashes is 1, expected == 0" in text
    assert "oob_index" in text and "decode step 17" in text and "engine.log" in text
    assert "90.0% of decode steps" in text
    assert f"folder   {tmp_path}\n" in text, "a path is not broken into lines"
    assert "         report.json\n" in text


def test_a_result_speaks_for_itself(tmp_path: Path) -> None:
    console, stream = printed()
    print_result(console, crashed(tmp_path))
    text = stream.getvalue()
    assert "3 taken back by lastpage when the load ended" in text
    assert "+1" in text and "pages left over (+) or short (-)" in text
    assert "decode step 17 since boot" in text


def test_a_result_says_when_the_rules_of_the_release_are_assumed(tmp_path: Path) -> None:
    run = crashed(tmp_path)
    assert run.engine is not None
    for assumed in (True, False):
        rules = EngineRules(release="0.5.23", assumed=assumed)
        engine = run.engine.model_copy(update={"rules": rules, "sglang_version": "0.5.31"})
        console, stream = printed(width=200)
        print_result(console, run.model_copy(update={"engine": engine}))
        told = "rules    assumed to be those of SGLang 0.5.23: 0.5.31 is not known"
        assert (told in stream.getvalue()) == assumed


def test_a_failure_that_can_be_made_again_comes_with_the_commands_that_do(tmp_path: Path) -> None:
    console, stream = printed(width=60)
    folder = tmp_path / "a folder"
    run = crashed(folder)
    print_result(console, run)
    assert "lastpage soak" not in stream.getvalue()
    folder.mkdir()
    (folder / "repro.yaml").touch()
    print_result(console, run.model_copy(update={"crashes": ()}))
    assert f"lastpage soak -f '{folder}/repro.yaml'\n" in stream.getvalue()
    assert "lastpage shrink" not in stream.getvalue(), "only crashes are shrunk"
    print_result(console, run)
    assert f"lastpage shrink '{folder}/repro.yaml'\n" in stream.getvalue()


def test_a_run_whose_engine_never_was_ready_has_no_table_of_zeros(tmp_path: Path) -> None:
    console, stream = printed()
    run = crashed(tmp_path).model_copy(update={"measures": Measures(), "crashes": (), "detail": "it would not"})
    print_result(console, run)
    assert "it would not" in stream.getvalue()
    assert "decode steps" not in stream.getvalue()


def test_of_arguments_that_were_refused_only_the_refusal_is_shown() -> None:
    usage = "\n".join(f"  [--option-{number}]" for number in range(400))
    error = "launch_server.py: error: unrecognized arguments: --no-such"
    shown = short_detail(f"the engine ended before it was ready: exit code 2\n{usage}\n{error}\nmore")
    assert shown == f"the engine ended before it was ready: exit code 2\n{error}\nsee engine.log"


def test_of_a_long_log_the_end_is_shown_and_a_short_one_whole() -> None:
    lines = [f"line {number}" for number in range(100)]
    shown = short_detail("\n".join(["why", *lines])).splitlines()
    assert (shown[0], shown[-1], len(shown)) == ("why", "line 99", 14)
    assert short_detail("why\nline 1") == "why\nline 1"


def record(path: Path) -> None:
    recorder = FlightRecorder(path, page_size=128, pool_pages=32, sglang_version="0.5.18", allocator="installed")
    for rows, need, free, trailing in ((8, 0, 3, 0), (8, 1, 3, 0), (8, 1, 2, 4), (5, 5, 5, 0)):
        recorder.enter(rows, need, free, trailing)
        recorder.leave(AllocationOutcome.RETURNED)
    recorder.count("prefill_batches")
    recorder.enter(8, 1, 1, 6)
    recorder.leave(AllocationOutcome.RAISED)
    recorder.raised(IndexError("index 1 is out of bounds for dimension 0 with size 1"))


def test_a_recording_is_printed_with_what_each_step_was(tmp_path: Path) -> None:
    record(tmp_path / "flight.bin")
    console, stream = printed(width=80)
    print_flight(console, FlightReader(tmp_path / "flight.bin"), last=4)
    text = stream.getvalue()
    heading, *rows = [line.split() for line in text.splitlines()[1:6]]
    assert heading == ["step", "ms", "rows", "need", "free", "trailing", "prefills", "retractions"]
    assert [(row[0], row[2:8], row[8:]) for row in rows] == [
        ("2", ["8", "1", "3", "0", "0", "0"], ["crossing"]),
        ("3", ["8", "1", "2", "4", "0", "0"], ["CLAMPED"]),
        ("4", ["5", "5", "5", "0", "0", "0"], ["TIGHT"]),
        ("5", ["8", "1", "1", "6", "1", "0"], ["CRITICAL", "raised"]),
    ]
    assert "SGLang 0.5.18, installed allocator, 32 pages of 128" in text
    assert "5 decode steps: crossing 4 (80.0%), tight 2 (40.0%), clamped 2 (40.0%), critical 1 (20.0%)" in text
    assert "IndexError: index 1 is out of bounds" in text


def test_beside_a_report_the_last_steps_under_load_are_printed_and_the_others_counted(tmp_path: Path) -> None:
    record(tmp_path / "flight.bin")
    measures = {"steps_before_load": 1, "decode_steps": 3}
    (tmp_path / "report.json").write_text(json.dumps({"measures": measures}))
    load = load_beside(tmp_path / "flight.bin")
    assert load == LoadSteps(before=1, under_load=3)
    console, stream = printed(width=200)
    print_flight(console, FlightReader(tmp_path / "flight.bin"), 2, load)
    _, _, *rows, totals, told, _ = stream.getvalue().splitlines()
    assert [row.split()[0] for row in rows] == ["3", "4"]
    assert totals.startswith("the whole recording, 5 decode steps")
    assert "3 of these steps; 1 came before" in told and "and 1 after, which --all shows" in told


@pytest.mark.parametrize("report", [None, "{", "[]", "{}", '{"measures": {"decode_steps": 3}}'])
def test_a_report_that_does_not_tell_leaves_the_whole_recording(tmp_path: Path, report: str | None) -> None:
    if report is not None:
        (tmp_path / "report.json").write_text(report)
    assert load_beside(tmp_path / "flight.bin") is None


def test_what_the_prefix_cache_held_and_gave_up_is_printed_where_there_was_one(tmp_path: Path) -> None:
    recorder = FlightRecorder(
        tmp_path / "flight.bin", page_size=128, pool_pages=32, sglang_version="0.5.23", allocator="installed"
    )
    recorder.count("evicted_pages", 3)
    recorder.count("prefill_batches")
    recorder.count("tight_prefill_batches")
    recorder.enter(8, 2, 2, 4, 5)
    recorder.leave(AllocationOutcome.RETURNED)
    console, stream = printed(width=80)
    print_flight(console, FlightReader(tmp_path / "flight.bin"), last=4)
    heading, row = (line.split() for line in stream.getvalue().splitlines()[1:3])
    assert heading[8:] == ["evicted", "cached"]
    assert row[2:] == ["8", "2", "2", "4", "1", "0", "3", "5", "CRITICAL"]
    assert "1 prefill batches, tight prefill batches 1 (100.0%), 0 retractions, 3 evicted pages" in stream.getvalue()


def test_a_step_that_never_came_back_is_told(tmp_path: Path) -> None:
    recorder = FlightRecorder(
        tmp_path / "flight.bin", page_size=128, pool_pages=32, sglang_version="0.5.23", allocator="installed"
    )
    recorder.enter(8, 1, 1, 6)
    console, stream = printed()
    print_flight(console, FlightReader(tmp_path / "flight.bin"), last=4)
    assert "CRITICAL no return" in stream.getvalue()


def test_a_recording_without_steps_is_printed(tmp_path: Path) -> None:
    FlightRecorder(tmp_path / "f", page_size=128, pool_pages=32, sglang_version="0.5.23", allocator="installed")
    console, stream = printed()
    print_flight(console, FlightReader(tmp_path / "f"), last=4)
    assert "No decode step" in stream.getvalue()


@pytest.mark.parametrize(
    ("found", "said", "unsaid"),
    [
        (
            EngineCheck(version="0.5.18", torch="2.9", clamp=False),
            ["reads past the free list", "can be made"],
            "problem",
        ),
        (EngineCheck(problem="it could not be started"), ["it could not be started; no run can be made"], "clamp"),
    ],
)
def test_a_check_says_whether_runs_can_be_made(found: EngineCheck, said: list[str], unsaid: str) -> None:
    console, stream = printed()
    print_check(console, Engine(name="mine", python=Path("/python"), origin="added"), found)
    assert all(text in stream.getvalue() for text in said)
    assert unsaid not in stream.getvalue()
