"""Claims about what the HTTP API says beside runs: health, metrics, engines, scenarios, targets."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from loadgen.scenarios import SCENARIOS
from service.engine.registry import EngineRegistry
from service.home import Home
from service.runs.model import RunStatus
from tests.api.conftest import Serve
from tests.fake_executor import FakeExecutor

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(20)]


async def test_the_process_is_alive_and_ready(client: httpx.AsyncClient) -> None:
    assert (await client.get("/healthz")).json() == {"status": "ok"}
    assert (await client.get("/readyz")).json() == {"status": "ready"}


async def test_a_scrape_is_answered_in_the_format_asked_for(client: httpx.AsyncClient) -> None:
    plain = await client.get("/metrics")
    assert plain.headers["content-type"].startswith("text/plain")
    names = {family.name for family in text_string_to_metric_families(plain.text)}
    assert {"lastpage_decode_steps", "lastpage_runs", "process_resident_memory_bytes"} <= names
    openmetrics = await client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
    assert openmetrics.text.endswith("# EOF\n")


async def test_engines_are_listed(client: httpx.AsyncClient, tmp_path: Path) -> None:
    assert (await client.get("/v1/engines")).json() == {"engines": []}
    python = tmp_path / "python"
    python.touch(mode=0o755)
    EngineRegistry(Home(tmp_path)).add("mine", python)
    listed = (await client.get("/v1/engines")).json()["engines"]
    assert [(engine["name"], engine["python"]) for engine in listed] == [("mine", str(python))]


async def test_scenarios_are_listed_with_the_schema_of_their_options(client: httpx.AsyncClient) -> None:
    listed = {scenario["name"]: scenario for scenario in (await client.get("/v1/scenarios")).json()["scenarios"]}
    assert listed.keys() == SCENARIOS.keys() >= {"tight", "steady"}
    for scenario in listed.values():
        assert scenario["summary"]
        assert scenario["options"]["type"] == "object"


async def test_targets_are_the_controller_and_the_engine_that_runs(serve: Serve) -> None:
    executor = FakeExecutor(hold_at=RunStatus.RUNNING)
    async with serve(executor) as client:
        controller = {"targets": ["controller:8000"], "labels": {"job": "lastpage"}}
        assert (await client.get("/v1/targets")).json() == [controller]
        run_id = (await client.post("/v1/runs", json={})).json()["id"]
        await executor.holding.wait()
        targets = (await client.get("/v1/targets")).json()
        assert targets[0] == controller
        assert targets[1]["targets"] == ["127.0.0.1:30000"]
        assert targets[1]["labels"] == {
            "job": "sglang",
            "run_id": run_id,
            "scenario": "tight",
            "engine": "fake",
            "sglang_version": "0.5.23",
            "allocator": "installed",
            "profile": "rehearsal",
        }


async def test_the_schema_describes_every_endpoint(client: httpx.AsyncClient) -> None:
    paths = (await client.get("/openapi.json")).json()["paths"]
    for path in ("/v1/runs", "/v1/runs/{run_id}", "/v1/runs/{run_id}/cancel", "/v1/runs/{run_id}/events"):
        assert path in paths
    for path in ("/v1/runs/{run_id}/report", "/v1/engines", "/v1/scenarios", "/v1/targets", "/metrics", "/healthz"):
        assert path in paths
