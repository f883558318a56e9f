"""Claims about docs/scenarios.md: it has every scenario, and tells what the reports tell and no more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import scenarios
from benchmarks.scenario_table import Made, findings, page, row, section, table, union
from benchmarks.scenarios import OPTIONS, finished_report, runnable, spec_of
from loadgen.coverage import Coverage
from loadgen.scenarios import SCENARIOS
from loadgen.sglang.pages import Pool
from loadgen.sglang.server import ServerConfiguration
from service.runs.coverage import edge_coverage
from service.spec.spec import RunSpec

MADE = Made("make scenarios", "2026-11-30", "2 cores, x86_64", "SGLang 0.5.23 on a plain CPU", 60.0, 1)
SERVER = ServerConfiguration(Pool(128, 32))


def report(**measures: Any) -> dict[str, Any]:
    counts = {"decode_steps": 2000, "tight_steps": 1500, "critical_steps": 1000, "retractions": 3, "evicted_pages": 0}
    return {"status": "finished", "crashes": [], "measures": {**counts, "seconds_under_load": 60.0, **measures}}


def keep(folder: Path, spec: RunSpec) -> dict[str, Any]:
    """The report of a finished run, written into its folder."""
    told = {"status": "finished", "spec": spec.model_dump(mode="json"), "measures": {}}
    folder.mkdir(exist_ok=True)
    (folder / "report.json").write_text(json.dumps(told))
    return told


def covering(first: int, last: int) -> dict[str, Any]:
    """A report whose run hit some of the reachable tight cells."""
    coverage = Coverage(SERVER)
    coverage.add(dict.fromkeys(sorted(coverage.reachable_tight)[first:last], 1))
    return report(coverage=edge_coverage(coverage, SERVER, cells=True).model_dump(mode="json"))


def test_a_row_has_the_counts_and_their_shares() -> None:
    cells = Coverage(SERVER)
    assert row(report()) == ("2,000", "1,500 (75%)", "1,000 (50%)", "3", "0", "", "", "none")
    covered = row(covering(0, 5))
    assert covered[5:7] == ("5", f"{5 / len(cells.reachable_tight):.1%}")


def test_what_a_report_does_not_tell_is_left_empty() -> None:
    told = {"status": "failed_to_start", "detail": "no\nport", "measures": {}}
    assert row(told) == ("", "", "", "", "", "", "", "failed_to_start: no port")


def test_findings_are_counted_by_kind_and_waived_ones_are_shown_as_such() -> None:
    told = report(failed_requests=2) | {
        "crashes": [{"kind": "index_error"}],
        "findings": [
            {"kind": "starved", "count": 3, "waived": "a known fault"},
            {"kind": "starved", "count": 1, "waived": None},
            {"kind": "wrong_output"},
        ],
    }
    assert findings(told) == ("1 crash (index_error), 3 starved (waived), 1 starved, 1 wrong_output, 2 failed request")


def test_what_runs_cover_between_them_counts_no_cell_twice() -> None:
    reachable = len(Coverage(SERVER).reachable_tight)
    assert f"**8 of {reachable:,} reachable tight cells" in union([covering(0, 6), covering(3, 8), report()])
    assert "in 120 s of load" in union([covering(0, 6), covering(3, 8), report()])
    assert union([report()]) == ""


def test_the_page_has_every_scenario_with_its_mechanism_and_options() -> None:
    text = page(SCENARIOS, {}, {32: {"tight": report()}}, {32: "Together."}, MADE)
    for name, scenario in SCENARIOS.items():
        assert f"## {name}\n" in text and scenario.summary in text
        for option in scenario.Options.model_fields:
            assert f"| `{option}` |" in section(name, scenario, {})
    assert "## On 32 pages" in text and "Together." in text
    assert {len(line.split("|")) for line in table({"tight": report()}).splitlines()} == {11}


def test_every_scenario_is_run_but_those_that_only_send_what_was_written_down() -> None:
    assert {name for name, scenario in SCENARIOS.items() if not runnable(scenario)} <= {"waves"}
    assert set(OPTIONS) <= set(SCENARIOS)


@pytest.mark.parametrize("pages", [32, 256])
@pytest.mark.parametrize("name", [name for name, scenario in SCENARIOS.items() if runnable(scenario)])
def test_every_scenario_can_work_on_the_pools_that_are_shown(name: str, pages: int) -> None:
    scenario = SCENARIOS[name]
    options = scenario.Options.model_validate(dict(OPTIONS.get(name, {})))
    assert scenario.faults(Pool(128, pages), options) == []


def test_a_finished_run_of_the_same_spec_is_not_made_again(tmp_path: Path) -> None:
    spec = spec_of("tight", 32, 20.0, "0.5.23")
    told = keep(tmp_path, spec)
    assert finished_report(tmp_path, spec) == told
    assert finished_report(tmp_path, spec_of("tight", 256, 20.0, "0.5.23")) is None
    assert finished_report(tmp_path, spec_of("tight", 32, 60.0, "0.5.23")) is None


@pytest.mark.parametrize("content", ["", "{}", "[]", "[" * 100_000, '{"status": "interrupted", "spec": {}}'])
def test_what_did_not_finish_is_made_again(tmp_path: Path, content: str) -> None:
    (tmp_path / "report.json").write_text(content)
    assert finished_report(tmp_path, spec_of("tight", 32, 20.0, "0.5.23")) is None
    assert finished_report(tmp_path / "missing", spec_of("tight", 32, 20.0, "0.5.23")) is None


def test_a_report_that_cannot_be_shown_is_not_taken_up(tmp_path: Path) -> None:
    spec = spec_of("tight", 32, 20.0, "0.5.23")
    told = keep(tmp_path, spec)
    coverage = covering(0, 5)["measures"]["coverage"]
    for damage in (
        {"measures": {"decode_steps": "many"}},
        {"crashes": [{}]},
        {"measures": {"coverage": coverage | {"tight": {"tight 1 0 0 running_rows decode": 1}}}},
    ):
        (tmp_path / "report.json").write_text(json.dumps(told | damage))
        assert finished_report(tmp_path, spec) is None
    (tmp_path / "report.json").write_text(json.dumps(told | {"measures": {"coverage": coverage}}))
    assert finished_report(tmp_path, spec) is not None


def test_only_what_is_missing_is_run_and_what_has_finished_outlives_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    async def run(spec: RunSpec, folder: Path) -> dict[str, Any]:
        if len(ran) == 2:
            raise scenarios.Interrupted
        ran.append(folder.name)
        return keep(folder, spec)

    monkeypatch.setattr(scenarios, "run", run)
    with pytest.raises(scenarios.Interrupted):
        scenarios.run_all(["tight", "steady", "churn"], [32], 20.0, "0.5.23", tmp_path)
    assert ran == ["tight-32-pages", "steady-32-pages"]
    ran.clear()
    reports = scenarios.run_all(["tight", "steady", "churn"], [32], 20.0, "0.5.23", tmp_path)
    assert ran == ["churn-32-pages"]
    assert list(reports[32]) == ["tight", "steady", "churn"]
