"""What a real engine is found to do wrong, and that one which does nothing wrong is not accused of anything."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from tests.real.planted_fault import plant
from tests.real.soaks import soak

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

RELEASE = "0.5.23"


def test_an_engine_in_order_is_found_in_order(tmp_path: Path) -> None:
    ended = soak(tmp_path, "--engine", RELEASE, "--duration", "30s", "--seed", "11")
    report = ended.report
    witnesses = report["measures"]["witnesses"]
    print(f"witnesses: {witnesses}, of {report['measures']['requests']['done']} requests that were answered")
    assert report["findings"] == [] and report["measures"]["findings"] == 0, ended.output
    assert witnesses["off"] is None and witnesses["compared"] == witnesses["answered"] > 20
    assert report["verdict"] == "pass", ended.output


def test_a_page_that_two_rows_have_is_seen_by_a_witness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_path = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [own_path, str(plant(tmp_path / "fault"))])))
    ended = soak(tmp_path / "out", "--engine", RELEASE, "--duration", "60s", "--seed", "11")
    found = [finding for finding in ended.report["findings"] if finding["kind"] == "wrong_output"]
    assert found, ended.output
    print(f"found {found[0]['elapsed_seconds']:.1f} s into the load: {found[0]['detail']}")
    assert ended.exit_code == 1 and ended.report["verdict"] == "fail"
    assert any("findings is" in reason for reason in ended.report["reasons"])
    assert all(finding["shortest_prompt_tokens"] > 0 and finding["count"] > 0 for finding in found)
    assert "wrong_output" in ended.output


def test_a_prompt_that_is_taken_in_and_never_admitted_starves_and_a_waiver_bears_it(tmp_path: Path) -> None:
    waiver = {
        "kind": "starved",
        "when": f"prompt_tokens > 3900 and scenario == extend and release == {RELEASE}",
        "reason": "longer than what the scheduler ever admits, and not refused",
        "link": "https://github.com/sgl-project/sglang",
    }
    spec = tmp_path / "soak.yaml"
    spec.write_text(yaml.safe_dump({"waivers": [waiver], "thresholds": ["critical_steps >= 1"]}))
    ended = soak(tmp_path / "out", "-f", str(spec), "--engine", RELEASE, "--scenario", "extend", "--duration", "40s")
    report = ended.report
    (starved,) = report["findings"]
    print(json.dumps(starved, indent=1))
    assert (starved["kind"], starved["waived"], starved["link"]) == ("starved", waiver["reason"], waiver["link"])
    assert starved["shortest_prompt_tokens"] > 3900 and "stood idle" in starved["cause"]
    assert (report["measures"]["findings"], report["crashes"]) == (0, [])
    assert report["measures"]["waived_findings"] == starved["count"] >= 1
    assert "waived" in ended.output and ended.exit_code == 0, ended.output
