"""Claims about report.json."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

import pytest

from service.files import write_atomically
from service.report.json_report import build_report, write_report
from service.report.report import Report, ReportExtract
from service.runs.model import Run, RunStatus, Verdict
from service.spec.parsing import parse_spec
from service.spec.spec import RunSpec
from tests.fake_executor import AT_THE_EDGE, CRASH, ENGINE

NOW = datetime(2026, 11, 30, 1, 2, 3, tzinfo=timezone.utc)


def crashed(folder: Path) -> Run:
    return Run(
        id="r",
        status=RunStatus.FINISHED,
        verdict=Verdict.FAIL,
        reasons=("crashes is 1, expected == 0",),
        spec=parse_spec({"load": {"seed": 7, "options": {"waves": 2}}}),
        folder=folder,
        created_at=NOW,
        started_at=NOW,
        finished_at=NOW,
        engine=ENGINE,
        measures=AT_THE_EDGE.model_copy(update={"crashes": 1}),
        crashes=(CRASH,),
    )


def test_a_report_has_every_key_that_the_design_names(tmp_path: Path) -> None:
    write_report(crashed(tmp_path))
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["schema"] == 2
    assert (report["verdict"], report["reasons"]) == ("fail", ["crashes is 1, expected == 0"])
    assert report["seed"] == 7
    load = {"scenario": "tight", "duration": 60.0, "options": {"waves": 2}}
    assert load.items() <= report["load"].items() and "seed" not in report["load"]
    assert report["measures"].keys() >= {
        *("decode_steps", "crossing_steps", "tight_steps", "clamped_steps", "critical_steps", "critical_share"),
        *("tight_share", "tight_not_critical_steps", "crashes", "requests", "failed_requests", "surplus"),
        *(
            "retractions",
            "evicted_pages",
            "prefill_batches",
            "tight_prefill_batches",
            "shortfalls",
            "latencies",
            "seconds_under_load",
            "ready_to_first_critical_seconds",
        ),
    }
    assert report["engine"].keys() >= {"name", "profile", "sglang_version", "allocator", "arguments"}
    assert report["engine"]["arguments"] == ["--page-size", "128"]
    crash = report["crashes"][0]
    assert (crash["kind"], crash["at"], crash["step"]) == ("oob_index", "2026-11-30T00:00:00Z", 17)
    assert crash["evidence"] == {"log": "engine.log", "flight": "flight.bin"}
    assert report["times"].keys() == {"created_at", "started_at", "ready_at", "finished_at"}
    assert RunSpec.model_validate(report["spec"]) == crashed(tmp_path).spec


def test_a_run_whose_engine_never_was_known_has_a_report_of_the_same_form() -> None:
    run = Run(id="r", spec=RunSpec(), folder=Path("/nowhere"), created_at=NOW)
    report = build_report(run)
    assert report["engine"]["arguments"] == []
    assert report["engine"].keys() <= build_report(crashed(Path("/nowhere")))["engine"].keys()
    assert report.keys() == build_report(crashed(Path("/nowhere"))).keys()


def test_a_report_goes_elsewhere_when_the_runs_folder_is_gone(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="instead") as told:
        write_report(crashed(tmp_path / "gone"), spare=tmp_path / "runs")
    elsewhere = tmp_path / "runs" / "r" / "report.json"
    assert json.loads(elsewhere.read_text())["verdict"] == "fail"
    assert str(elsewhere) in str(told.value)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "report.json"
    write_atomically(file, "old")

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_atomically(file, "new")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_the_report_is_one_of_its_own_schema(tmp_path: Path) -> None:
    for run in (crashed(tmp_path), crashed(tmp_path).model_copy(update={"engine": None})):
        built = build_report(run)
        assert Report.model_validate(built).model_dump(mode="json", by_alias=True) == built
        assert ReportExtract.model_validate(built).measures == run.measures
