"""Claims about what the HTTP API says beside runs: health, metrics, engines, scenarios, targets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from loadgen.scenarios import SCENARIOS
from service.engine.registry import EngineRegistry
from service.home import Home
from service.runs.model import RunStatus
from tests.api.conftest import Serve
from tests.fake_executor import ENGINE, FakeExecutor

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(20)]


async def test_the_process_is_alive_and_ready(client: httpx.AsyncClient) -> None:
    assert (await client.get("/healthz")).json() == {"status": "ok"}
    assert (await client.get("/readyz")).json() == {"status": "ready"}


async def test_the_root_leads_to_the_description(client: httpx.AsyncClient) -> None:
    answer = await client.get("/")
    assert (answer.is_redirect, answer.headers["location"]) == (True, "/docs")


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
        assert targets[1]["targets"] == ["controller:8000"]
        assert targets[1]["labels"] == {
            "__metrics_path__": "/metrics/engine",
            "__param_run": run_id,
            "job": "sglang",
            "run_id": run_id,
            "scenario": "tight",
            "engine": "fake",
            "sglang_version": "0.5.23",
            "allocator": "installed",
            "profile": "rehearsal",
        }
        executor.release.set()
        async with client.stream("GET", f"/v1/runs/{run_id}/events") as until_its_end:
            await until_its_end.aread()
        assert (await client.get("/v1/targets")).json() == [controller]


class _Engine(BaseHTTPRequestHandler):
    """Says what SGLang's /metrics would."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/metrics" else 404)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(b"sglang:token_usage 0.97\n")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def engine_address() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Engine) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


async def test_metrics_of_the_engine_are_handed_on(serve: Serve, engine_address: str) -> None:
    executor = FakeExecutor(hold_at=RunStatus.RUNNING, engine=ENGINE.model_copy(update={"address": engine_address}))
    async with serve(executor) as client:
        idle = await client.get("/metrics/engine")
        assert (idle.status_code, idle.text) == (200, "")
        run_id = (await client.post("/v1/runs", json={})).json()["id"]
        await executor.holding.wait()
        for query in ({}, {"run": run_id}):
            answer = await client.get("/metrics/engine", params=query)
            assert (answer.status_code, answer.text) == (200, "sglang:token_usage 0.97\n")
            assert answer.headers["content-type"] == "text/plain; version=0.0.4"
        assert (await client.get("/metrics/engine", params={"run": "another"})).status_code == 404


async def test_engine_that_does_not_answer_is_said_to_be_silent(serve: Serve) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        executor = FakeExecutor(hold_at=RunStatus.RUNNING, engine=ENGINE.model_copy(update={"address": address}))
        async with serve(executor) as client:
            await client.post("/v1/runs", json={})
            await executor.holding.wait()
            answer = await client.get("/metrics/engine")
            assert answer.status_code == 502 and "fake does not answer" in answer.text


async def test_the_schema_describes_every_endpoint(client: httpx.AsyncClient) -> None:
    paths = (await client.get("/openapi.json")).json()["paths"]
    for path in ("/v1/runs", "/v1/runs/{run_id}", "/v1/runs/{run_id}/cancel", "/v1/runs/{run_id}/events"):
        assert path in paths
    for path in ("/v1/runs/{run_id}/report", "/v1/engines", "/v1/scenarios", "/v1/targets", "/metrics", "/healthz"):
        assert path in paths


async def test_the_schema_describes_the_report_and_its_measures(client: httpx.AsyncClient) -> None:
    described = (await client.get("/openapi.json")).json()
    answer = described["paths"]["/v1/runs/{run_id}/report"]["get"]["responses"]["200"]
    name = answer["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    report = described["components"]["schemas"][name]
    assert {"schema", "verdict", "reasons", "measures", "crashes", "engine", "times", "seed"} <= set(
        report["properties"]
    )
    measures = described["components"]["schemas"][report["properties"]["measures"]["$ref"].rpartition("/")[2]]
    assert {"critical_steps", "critical_share"} <= set(measures["properties"])
