"""`lastpage serve` on a simulated engine: runs are watched, reported and cancelled, and what cannot work is refused."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from service.engine.registry import EngineRegistry
from service.engine.simulated import Simulation
from service.home import Home
from tests.engine.process.launches import wait_for
from tests.real.leftovers import MARK_VARIABLE, marked
from tests.real.soaks import ROOT
from tests.serving import STOP_SECONDS, run_at, serving

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]

ENGINE = "sim"
RUN_SECONDS = 60.0
LAST_MOMENTS_SECONDS = 5.0


@pytest.fixture(scope="module")
def mark() -> Iterator[str]:
    """A variable that every process started by these tests inherits, engines included."""
    os.environ[MARK_VARIABLE] = mark = uuid.uuid4().hex
    yield mark
    del os.environ[MARK_VARIABLE]
    assert wait_for(lambda: not marked(mark), LAST_MOMENTS_SECONDS), f"left behind: {marked(mark)}"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory, mark: str) -> Iterator[httpx.Client]:
    home = Home(tmp_path_factory.mktemp("home")).ensure()
    EngineRegistry(home).add_simulated(ENGINE, Simulation(time_scale=20))
    with serving(home) as client:
        yield client


def test_a_run_is_created_watched_and_reported_with_the_word_simulated_beside_its_verdict(api: httpx.Client) -> None:
    waves = [{"requests": "3840+2 1+2", "idle": True}] * 3
    load = {"scenario": "waves", "seed": 3, "options": {"made_by": "tight", "waves": waves}}
    created = api.post(
        "/v1/runs", json={"engine": {"name": ENGINE}, "load": load, "thresholds": ["critical_steps >= 1"]}
    )
    assert created.status_code == 201, created.text
    links = created.json()["links"]
    assert api.get(links["report"]).status_code == 409
    with api.stream("GET", links["events"], timeout=RUN_SECONDS) as stream:
        lines = [line for line in stream.iter_lines() if line.startswith("event:")]
    names = [line.partition(":")[2].strip() for line in lines]
    assert names[0] == "status" and "progress" in names and names[-1] == "finished"
    run, report = run_at(api, links), api.get(links["report"]).json()
    assert (run["status"], run["verdict"], run["crashes"]) == ("finished", "pass", []), run["reasons"]
    for told in (run, report):
        assert told["engine"]["profile"] == "simulated" and any("simulated" in reason for reason in told["reasons"])
    metrics = api.get("/metrics").text
    assert 'lastpage_runs_total{verdict="pass"} 0.0' in metrics
    passes = [line for line in metrics.splitlines() if 'verdict="pass"' in line and not line.endswith(" 0.0")]
    assert passes and all("+simulated" in line for line in passes)


def test_cancelled_run_is_over_soon_and_so_is_its_engine(api: httpx.Client, mark: str) -> None:
    links = api.post("/v1/runs", json={"engine": {"name": ENGINE}, "load": {"duration": "10h"}}).json()["links"]
    waiting = api.post("/v1/runs", json={"engine": {"name": ENGINE}}).json()["links"]
    assert wait_for(lambda: run_at(api, links)["status"] == "running", RUN_SECONDS)
    assert run_at(api, waiting)["status"] == "created"
    assert api.post(waiting["cancel"]).json()["status"] == "cancelled"

    assert marked(mark, engines_only=True)
    assert api.post(links["cancel"]).status_code == 202
    began = time.monotonic()
    assert wait_for(lambda: run_at(api, links)["status"] == "cancelled", STOP_SECONDS)
    print(f"cancelled within {time.monotonic() - began:.1f} s")
    assert not marked(mark, engines_only=True)
    report = api.get(links["report"]).json()
    assert (report["status"], report["crashes"]) == ("cancelled", [])
    assert api.post(links["cancel"]).status_code == 409


@pytest.mark.parametrize(
    ("spec", "name", "told"),
    [
        ({"engine": {"name": "0.0.1"}}, "engine.name", ENGINE),
        ({"engine": {"page_size": 1}}, "engine.page_size", "2"),
        ({"engine": {"pool_pages": 2}}, "engine.pool_pages", "at least"),
        ({"engine": {"args": ["--page-size=64"]}}, "engine.args", "--page-size"),
        ({"engine": {"model": str(ROOT)}}, "engine.model", "config.json"),
        ({"load": {"scenario": "loose"}}, "load.scenario", "tight"),
        ({"load": {"duration": "soon"}}, "load.duration", "5m"),
        ({"pool": 32}, "pool", "engine"),
        ({"thresholds": ["luck >= 1"]}, "thresholds", "critical_steps"),
    ],
)
def test_spec_that_cannot_work_is_refused_by_field(
    api: httpx.Client, spec: dict[str, Any], name: str, told: str, mark: str
) -> None:
    runs = len(api.get("/v1/runs").json()["runs"])
    answer = api.post("/v1/runs", json={**spec, "engine": {"name": ENGINE, **spec.get("engine", {})}})
    assert answer.status_code == 422, answer.text
    faults = answer.json()["detail"]
    fault = next((fault for fault in faults if fault["field"].startswith(name)), None)
    assert fault is not None and set(fault) == {"field", "value", "message"}, faults
    assert told in fault["message"], fault
    assert len(api.get("/v1/runs").json()["runs"]) == runs and not marked(mark, engines_only=True)


def test_every_fault_of_a_spec_is_told_at_once(api: httpx.Client) -> None:
    spec = {"engine": {"name": "0.0.1", "args": ["--port", "1"]}, "load": {"scenario": "loose"}}
    fields = {fault["field"] for fault in api.post("/v1/runs", json=spec).json()["detail"]}
    assert fields == {"engine.name", "engine.args", "load.scenario"}
