"""`lastpage serve` on a real engine: a run is created, watched and reported over HTTP.

That runs are cancelled, and that what cannot work is refused, stands in tests/simulation.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.engine.registry import EngineRegistry
from service.home import Home
from tests.engine.process.launches import wait_for
from tests.real.leftovers import marked
from tests.serving import serving

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

RELEASE = "0.5.23"
SPEC = {"name": "nightly", "load": {"duration": "6s", "seed": 3}, "thresholds": ["critical_steps >= 50"]}
START_SECONDS, RUN_SECONDS, STOP_SECONDS = 30.0, 240.0, 60.0
EVENT_GAP_SECONDS = 180.0
LAST_MOMENTS_SECONDS = 5.0
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")


@dataclass
class Watched:
    """A run that was watched from its creation to its end, and what else was asked on the way.

    Attributes:
        events: type and data of each Server-Sent Event, in order.
        last_event_id: of the last one.
        metrics, targets, engine_metrics, report: answers while load was on the engine.
    """

    run: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    last_event_id: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    targets: list[dict[str, Any]] = field(default_factory=list)
    engine_metrics: dict[str, float] = field(default_factory=dict)
    report: httpx.Response | None = None


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home that knows the installed release, so that these runs are not put among a person's own."""
    home = Home(tmp_path_factory.mktemp("home")).ensure()
    EngineRegistry(home).record(EngineRegistry(Home.default()).get(RELEASE))
    return home


@pytest.fixture(scope="module")
def api(home: Home, mark: str) -> Iterator[httpx.Client]:
    """A client of a service, which must leave in order when it is told to."""
    with serving(home) as client:
        yield client
    assert wait_for(lambda: not marked(mark), LAST_MOMENTS_SECONDS), marked(mark)


@pytest.fixture(scope="module")
def watched(api: httpx.Client) -> Watched:
    created = api.post("/v1/runs", json=SPEC)
    assert created.status_code == 201, created.text
    assert created.headers["Location"] == created.json()["links"]["self"]
    watched = Watched(created.json())
    with api.stream("GET", watched.run["links"]["events"], timeout=EVENT_GAP_SECONDS) as stream:
        for event_id, name, data in _events(stream):
            watched.events.append((name, data))
            watched.last_event_id = event_id
            if name == "progress" and data["measures"]["critical_steps"] > 0 and not watched.metrics:
                _ask_around(api, watched)
    return watched


def _ask_around(api: httpx.Client, watched: Watched) -> None:
    """What the service says while load is on the engine."""
    watched.metrics = _series(api.get("/metrics").text)
    watched.targets = api.get("/v1/targets").json()
    watched.report = api.get(watched.run["links"]["report"])
    (engine,) = _engine_targets(watched.targets)
    time.sleep(1)  # the plugin publishes twice a second
    path, run_id = engine["labels"]["__metrics_path__"], engine["labels"]["__param_run"]
    watched.engine_metrics = _series(api.get(path, params={"run": run_id}).text)


def test_events_tell_the_run_from_its_creation_to_its_verdict(watched: Watched) -> None:
    names = [name for name, _ in watched.events]
    statuses = [data["status"] for name, data in watched.events if name == "status"]
    assert list(dict.fromkeys(statuses)) == ["created", "launching", "running", "draining"]
    assert names.count("progress") > 3 and names.count("finished") == 1 and names[-1] == "finished"
    steps = [data["measures"]["decode_steps"] for name, data in watched.events if name == "progress"]
    assert steps == sorted(steps) and steps[-1] > 0
    last = watched.events[-1][1]
    assert (last["status"], last["verdict"], last["crashes"]) == ("finished", "pass", []), last["reasons"]


def test_events_are_replayed_and_do_not_begin_anew_after_the_last(api: httpx.Client, watched: Watched) -> None:
    path = watched.run["links"]["events"]
    with api.stream("GET", path) as stream:
        assert [(name, data) for _, name, data in _events(stream)] == watched.events
    assert api.get(path, headers={"Last-Event-ID": watched.last_event_id}).status_code == 204


def test_metrics_of_service_and_engine_count_the_critical_steps(api: httpx.Client, watched: Watched) -> None:
    assert watched.metrics["lastpage_critical_steps_total"] > 0
    assert watched.metrics["lastpage_pool_pages"] == 32
    assert watched.metrics["lastpage_run_info"] == 1
    assert watched.engine_metrics["lastpage_critical_steps_total"] > 0
    after = _series(api.get("/metrics").text)
    assert after["lastpage_decode_steps_total"] >= watched.events[-1][1]["measures"]["decode_steps"] > 0
    assert "lastpage_run_info" not in after and "lastpage_pool_pages" not in after


def test_targets_name_the_engine_only_while_it_runs(api: httpx.Client, watched: Watched) -> None:
    (engine,) = _engine_targets(watched.targets)
    labels = engine["labels"]
    assert (labels["run_id"], labels["scenario"], labels["engine"]) == (watched.run["id"], "tight", RELEASE)
    assert engine["targets"] == [api.base_url.netloc.decode()]
    assert not _engine_targets(api.get("/v1/targets").json())


def test_report_comes_with_the_end_and_is_the_one_in_the_folder(api: httpx.Client, watched: Watched) -> None:
    assert watched.report is not None and watched.report.status_code == 409
    report = api.get(watched.run["links"]["report"]).json()
    folder = Path(api.get(watched.run["links"]["self"]).json()["folder"])
    assert report == json.loads((folder / "report.json").read_text())
    assert (report["verdict"], report["seed"], report["spec"]["name"]) == ("pass", 3, "nightly")
    assert api.get(f"{watched.run['links']['report']}.json").json() == report
    assert watched.run["id"] in [run["id"] for run in api.get("/v1/runs").json()["runs"]]


def _engine_targets(targets: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [group for group in targets if "run_id" in group["labels"]]


def _events(stream: httpx.Response) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Id, type and data of each Server-Sent Event."""
    fields: dict[str, str] = {}
    for line in stream.iter_lines():
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.strip()
        elif "data" in fields:
            yield fields["id"], fields["event"], json.loads(fields["data"])
            fields = {}


def _series(text: str) -> dict[str, float]:
    """Samples of one text exposition, by name, summed over their labels."""
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    return sums
