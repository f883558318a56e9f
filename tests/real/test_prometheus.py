"""A real Prometheus, configured as shipped, sees real runs; then every panel and every alert is asked of it.

Three runs on one controller: one at the edge, one that leaves slack and whose scheduler is stopped (a hang), and one
without the clamp (a crash). Last the controller goes away.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from dashboards.ask import Series, filled_in, query_range
from service.engine.registry import EngineRegistry
from service.home import Home
from service.plugin.flight_reader import FlightReader
from tests.dashboards.boards import boards, expressions
from tests.real.prometheus import npu_exporter, prometheus
from tests.real.soaks import ROOT

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

RELEASE = "0.5.23"
# `make picture` asks for a longer run, drawn into docs/.
PICTURE = os.environ.get("LASTPAGE_PICTURE")
SECONDS_AT_THE_EDGE = 60 if PICTURE else 15
START_SECONDS, BOOT_SECONDS, SCRAPES_SECONDS = 30.0, 240.0, 60.0
STEP_SECONDS = 1.0
POLL_SECONDS = 0.5

AT_THE_EDGE = {"engine": {"name": RELEASE}, "load": {"duration": f"{SECONDS_AT_THE_EDGE}s", "seed": 5}}
WITH_SLACK = {
    "engine": {"name": RELEASE, "hang_seconds": 3},
    "load": {"scenario": "steady", "duration": "10m", "seed": 5},
}
WITHOUT_CLAMP = {"engine": {"name": RELEASE, "allocator": "unpatched"}, "load": {"duration": "60s", "seed": 5}}
ALERTS = {
    rule["alert"]: rule["expr"]
    for group in yaml.safe_load((ROOT / "dashboards/rules/lastpage.yml").read_text())["groups"]
    for rule in group["rules"]
}
PANELS = expressions()


@dataclass
class Seen:
    """What Prometheus has.

    Attributes:
        began, ended: Unix times, seconds.
        runs: the three runs, as the API showed them when they had ended.
        discovered: what it had found through the controller while the first run was under load.
    """

    url: str
    began: float
    ended: float
    runs: list[dict[str, Any]]
    discovered: list[dict[str, str]]

    def ask(self, expression: str) -> list[Series]:
        return query_range(self.url, filled_in(expression), self.began, self.ended, STEP_SECONDS)


class Watching:
    """A controller and the Prometheus that scrapes it."""

    def __init__(self, api: httpx.Client, url: str) -> None:
        self.api = api
        self.url = url

    def submit(self, spec: dict[str, Any]) -> str:
        answer = self.api.post("/v1/runs", json=spec)
        assert answer.status_code < 300, answer.text
        return str(answer.json()["id"])

    def run(self, run_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api.get(f"/v1/runs/{run_id}").json()
        return found

    def until(self, happened: Callable[[], object], seconds: float, what: str) -> None:
        began = time.monotonic()
        while not happened():
            assert time.monotonic() < began + seconds, f"{what} did not happen within {seconds:g} s"
            time.sleep(POLL_SECONDS)
        print(f"{time.monotonic() - began:6.1f} s until {what}")

    def until_under_load(self, run_id: str) -> None:
        self.until(lambda: self.run(run_id)["status"] not in ("created", "launching"), BOOT_SECONDS, "load")
        assert self.run(run_id)["status"] == "running", self.run(run_id)

    def until_ended(self, run_id: str) -> dict[str, Any]:
        self.until(lambda: self.run(run_id)["finished_at"], BOOT_SECONDS + SECONDS_AT_THE_EDGE, "the run's end")
        return self.run(run_id)

    def until_answered(self, expression: str, seconds: float = SCRAPES_SECONDS) -> None:
        """Wait until the expression has data now."""

        def answered() -> bool:
            now = time.time()
            return bool(query_range(self.url, filled_in(expression), now - 1, now, STEP_SECONDS))

        self.until(answered, seconds, expression)

    def discovered(self) -> list[dict[str, str]]:
        answer = httpx.get(f"{self.url}/api/v1/targets", trust_env=False).json()
        return [target["labels"] for target in answer["data"]["activeTargets"] if target["health"] == "up"]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, mark: str) -> Iterator[Seen]:
    home = Home(tmp_path_factory.mktemp("home")).ensure()
    EngineRegistry(home).record(EngineRegistry(Home.default()).get(RELEASE))
    # What the engine said about itself is known already, where another test has asked it.
    shutil.copytree(Home.default().checks, home.checks, dirs_exist_ok=True)
    controller = subprocess.Popen(
        [sys.executable, "-m", "tests.real.monitored_controller", str(home.root)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert controller.stdout is not None
        address = f"127.0.0.1:{int(controller.stdout.readline())}"
        began = time.time()
        with (
            npu_exporter() as exporter,
            prometheus(tmp_path_factory.mktemp("prometheus"), address, exporter) as url,
            httpx.Client(base_url=f"http://{address}", trust_env=False, timeout=60) as api,
        ):
            watching = Watching(api, url)
            watching.until(lambda: api.get("/readyz").is_success, START_SECONDS, "readiness")
            edge, discovered = at_the_edge(watching)
            runs = [edge, with_slack(watching), without_clamp(watching)]
            controller.send_signal(signal.SIGUSR1)
            watching.until_answered(ALERTS["LastpageFinding"])
            controller.terminate()
            controller.wait(60)
            watching.until_answered('ALERTS{alertname="LastpageControllerDown"}')
            time.sleep(2 * STEP_SECONDS)
            yield Seen(url, began, time.time(), runs, discovered)
    finally:
        controller.kill()
        controller.communicate()


def at_the_edge(watching: Watching) -> tuple[dict[str, Any], list[dict[str, str]]]:
    run_id = watching.submit(AT_THE_EDGE)
    watching.until_under_load(run_id)
    # The engine is found through the controller, and scraped at least once.
    watching.until_answered(f'sglang:token_usage{{job="sglang", run_id="{run_id}"}}')
    discovered = watching.discovered()
    return watching.until_ended(run_id), discovered


def with_slack(watching: Watching) -> dict[str, Any]:
    """A soak that does not reach the edge; when that has been seen, its scheduler is stopped."""
    run_id = watching.submit(WITH_SLACK)
    watching.until_under_load(run_id)
    watching.until_answered(ALERTS["LastpageEdgeNotReached"], 120)
    reader = FlightReader(Path(watching.run(run_id)["folder"]) / "flight.bin")
    os.kill(reader.identity.pid, signal.SIGSTOP)
    reader.close()
    run = watching.until_ended(run_id)
    watching.until_answered(ALERTS["LastpageEngineHung"])
    return run


def without_clamp(watching: Watching) -> dict[str, Any]:
    run = watching.until_ended(watching.submit(WITHOUT_CLAMP))
    watching.until_answered(ALERTS["LastpageEngineCrashed"])
    return run


def test_runs_went_as_they_should(seen: Seen) -> None:
    edge, slack, crashed = seen.runs
    assert (edge["verdict"], edge["crashes"]) == ("pass", []), edge
    assert [crash["kind"] for crash in slack["crashes"]] == ["hang"], slack
    assert [crash["kind"] for crash in crashed["crashes"]] == ["oob_index"], crashed


def test_controller_and_engine_are_found_with_the_labels_of_the_run(seen: Seen) -> None:
    jobs = {labels["job"]: labels for labels in seen.discovered}
    assert jobs.keys() == {"lastpage", "sglang", "npu-exporter"}
    expected = {"run_id": seen.runs[0]["id"], "scenario": "tight", "engine": RELEASE, "sglang_version": RELEASE}
    assert expected.items() <= jobs["sglang"].items() and jobs["sglang"]["allocator"] == "installed"


@pytest.mark.parametrize("name", PANELS)
def test_panel_has_data(seen: Seen, name: str) -> None:
    assert seen.ask(PANELS[name]), PANELS[name]


@pytest.mark.parametrize("name", ALERTS)
def test_alert_has_data_and_is_raised(seen: Seen, name: str) -> None:
    assert seen.ask(ALERTS[name]), ALERTS[name]
    assert seen.ask(f'ALERTS{{alertname="{name}"}}'), "its rule has not been evaluated to anything"


def test_variables_have_values(seen: Seen) -> None:
    info = seen.ask('lastpage_run_info{job="lastpage"}')
    assert {series.labels["run_id"] for series in info} == {run["id"] for run in seen.runs}


def test_crashes_are_marked_when_they_happened(seen: Seen) -> None:
    for board in boards().values():
        marks = {value for series in seen.ask(board["annotations"]["list"][0]["expr"]) for value in series.values}
        assert len(marks) == 2 and all(seen.began < mark / 1000 < seen.ended for mark in marks)


def test_histogram_has_every_crossing_step_of_the_runs(seen: Seen) -> None:
    """Not a sample of them: what the scrapes missed is in the buckets."""
    (counted,) = seen.ask('lastpage_crossing_free_pages_count{job="lastpage"}')
    # The engine decodes on while the last of its recording is read.
    assert counted.values[-1] == pytest.approx(sum(run["measures"]["crossing_steps"] for run in seen.runs), abs=3)


def test_series_of_a_run_end_with_it(seen: Seen) -> None:
    for metric in ("lastpage_pool_free_pages", "lastpage_run_info"):
        last = max(series.times[-1] for series in seen.ask(metric + '{job="lastpage"}'))
        assert last < seen.ended - 2, metric


def test_counters_never_go_backwards(seen: Seen) -> None:
    for series in seen.ask('{job="lastpage", __name__=~"lastpage_.+_(total|count|bucket)"}'):
        assert list(series.values) == sorted(series.values), series.labels


def test_pool_pressure_is_drawn(seen: Seen, tmp_path: Path) -> None:
    from dashboards.draw import draw

    file = Path(PICTURE) if PICTURE else tmp_path / "pool-pressure.png"
    draw(seen.url, seen.began, seen.ended, file)
    assert file.read_bytes().startswith(b"\x89PNG") and file.stat().st_size > 20_000
