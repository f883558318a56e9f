"""Claims about the HTTP API of runs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx
import pytest

from service.api.body_limit import MAX_BODY_BYTES
from service.runs.model import RunStatus
from service.spec.faults import Fault
from tests.api.conftest import Serve
from tests.fake_executor import CRASH, FINDING, WAIVED, FakeExecutor

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(20)]


async def ended(client: httpx.AsyncClient, run_id: str) -> dict[str, Any]:
    with anyio.fail_after(10):
        while True:
            run: dict[str, Any] = (await client.get(f"/v1/runs/{run_id}")).json()
            if run["verdict"]:
                return run
            await anyio.sleep(0.01)


async def create(client: httpx.AsyncClient, spec: dict[str, Any] | None = None) -> str:
    answer = await client.post("/v1/runs", json=spec or {})
    assert answer.status_code == 201, answer.text
    run_id: str = answer.json()["id"]
    return run_id


def fault(answer: httpx.Response, status_code: int) -> dict[str, Any]:
    assert answer.status_code == status_code, answer.text
    assert answer.headers["content-type"] == "application/json"
    detail = answer.json()["detail"]
    assert detail and all(set(entry) == {"field", "value", "message"} for entry in detail)
    first: dict[str, Any] = detail[0]
    return first


@pytest.mark.parametrize("content_type", ["application/json", "application/x-www-form-urlencoded", None])
async def test_no_body_is_the_default_spec(client: httpx.AsyncClient, content_type: str | None) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    answer = await client.post("/v1/runs", content=b"", headers=headers)
    assert answer.status_code == 201
    assert answer.json()["spec"]["load"]["scenario"] == "tight"


async def test_a_run_is_created_shown_and_reported(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/runs", json={"name": "nightly", "load": {"duration": "5m"}})
    assert answer.status_code == 201
    created = answer.json()
    assert created["status"] == "created"
    assert created["spec"]["load"]["duration"] == 300
    assert answer.headers["location"] == created["links"]["self"]
    run = await ended(client, created["id"])
    for key in ("id", "status", "verdict", "spec", "created_at", "started_at", "finished_at", "measures", "crashes"):
        assert run[key] not in (None, "", {}), key
    assert run["measures"]["critical_share"] == 0.9
    assert "cancel" in created["links"] and "cancel" not in run["links"]
    report = (await client.get(run["links"]["report"])).json()
    assert (report["schema"], report["verdict"], report["spec"]) == (2, "pass", run["spec"])
    assert (await client.get(run["links"]["report"] + ".json")).json() == report


async def test_every_fault_of_a_spec_is_named_by_its_field(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/runs", json={"engine": {"page_size": 1, "colour": "red"}, "load": {"seed": "x"}})
    assert fault(answer, 422)["field"] == "engine.page_size"
    assert [entry["field"] for entry in answer.json()["detail"]] == ["engine.page_size", "engine.colour", "load.seed"]
    assert "allowed: name, allocator, model" in answer.json()["detail"][1]["message"]
    assert (await client.get("/v1/runs")).json() == {"runs": []}


async def test_a_fault_found_in_preflight_is_refused_like_one_of_form(serve: Serve) -> None:
    executor = FakeExecutor()
    executor.faults = [Fault(field="load.scenario", value="tihgt", message="unknown scenario; allowed: steady, tight")]
    async with serve(executor) as client:
        answer = await client.post("/v1/runs", json={"load": {"scenario": "tihgt"}})
        assert fault(answer, 422) == executor.faults[0].model_dump()
        assert (await client.get("/v1/runs")).json() == {"runs": []}


@pytest.mark.parametrize(
    ("content", "content_type", "said"),
    [
        ("{", "application/json", "not JSON"),
        ("[]", "application/json", "not a mapping"),
        ("{}", "text/plain", "Content-Type: application/json"),
        ('{"load": {"duration": NaN}}', "application/json", "finite"),
        ('{"name": "\\ud800"}', "application/json", "Unicode"),
        ('{"\\ud800": 1}', "application/json", "Unicode"),
        ('{"labels": {"a": "\\ud800"}}', "application/json", "Unicode"),
        (json.dumps({"load": {"options": {"waves": [0] * 100_000}}}), "application/json", "more than 10,000 values"),
    ],
)
async def test_a_body_that_is_no_spec_is_refused(
    client: httpx.AsyncClient, content: str, content_type: str, said: str
) -> None:
    answer = await client.post("/v1/runs", content=content, headers={"Content-Type": content_type})
    assert said in fault(answer, 422)["message"]


@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_that_is_too_large_is_refused_before_it_is_read(
    client: httpx.AsyncClient, announced: bool
) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(3 * MAX_BODY_BYTES // 2**20):
            yield b" " * 2**20

    content = b" " * (MAX_BODY_BYTES + 1) if announced else parts()
    answer = await client.post("/v1/runs", content=content, headers={"Content-Type": "application/json"})
    assert "allowed: up to 16,777,216 bytes" in fault(answer, 413)["message"]
    assert (await client.get("/v1/runs")).json() == {"runs": []}


async def test_what_does_not_exist_is_told_apart(client: httpx.AsyncClient) -> None:
    for method, path in (("GET", ""), ("GET", "/report"), ("GET", "/events"), ("POST", "/cancel")):
        answer = await client.request(method, f"/v1/runs/none{path}")
        assert fault(answer, 404) == {"field": "run_id", "value": "none", "message": "there is no run 'none'"}
    assert fault(await client.get("/v2"), 404)["value"] == "/v2"
    assert fault(await client.delete("/v1/runs"), 405)["field"] == "path"


async def test_runs_are_listed_newest_first_by_status_up_to_a_limit(serve: Serve) -> None:
    async with serve(FakeExecutor(hold_at=RunStatus.RUNNING)) as client:
        ids = [await create(client) for _ in range(3)]

        async def listed(query: str) -> list[str]:
            return [run["id"] for run in (await client.get(f"/v1/runs{query}")).json()["runs"]]

        assert await listed("") == ids[::-1]
        assert await listed("?limit=1") == ids[2:]
        assert await listed("?status=created") == ids[:0:-1]
        assert fault(await client.get("/v1/runs?limit=0"), 422)["field"] == "limit"
        assert "'created', 'launching'" in fault(await client.get("/v1/runs?status=new"), 422)["message"]


async def test_a_run_is_cancelled_once_and_reports_what_it_measured(serve: Serve) -> None:
    executor = FakeExecutor(hold_at=RunStatus.RUNNING)
    async with serve(executor) as client:
        run_id = await create(client)
        await executor.holding.wait()
        assert "has not ended" in fault(await client.get(f"/v1/runs/{run_id}/report"), 409)["message"]
        assert (await client.post(f"/v1/runs/{run_id}/cancel")).status_code == 202
        run = await ended(client, run_id)
        assert (run["status"], run["verdict"]) == ("cancelled", "inconclusive")
        assert fault(await client.post(f"/v1/runs/{run_id}/cancel"), 409)["field"] == "run_id"
        assert (await client.get(f"/v1/runs/{run_id}/report")).json()["status"] == "cancelled"


async def test_a_report_is_refused_in_formats_that_are_not_there(client: httpx.AsyncClient) -> None:
    run_id = await create(client)
    await ended(client, run_id)
    path = f"/v1/runs/{run_id}/report"
    assert "JSON" in fault(await client.get(path, headers={"Accept": "text/html"}), 406)["message"]
    assert fault(await client.get(f"{path}.xml"), 406)["value"] == "xml"
    for accept in ("application/json", "text/html, */*;q=0.8", "application/*"):
        assert (await client.get(path, headers={"Accept": accept})).status_code == 200


def events(text: str) -> list[tuple[int, str, dict[str, Any]]]:
    found = []
    for block in text.replace("\r\n", "\n").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if fields:
            found.append((int(fields["id"]), fields["event"], json.loads(fields["data"])))
    return found


async def test_events_are_replayed_from_the_start_or_after_the_last_one_seen(serve: Serve) -> None:
    async with serve(FakeExecutor(crash=CRASH)) as client:
        run_id = await create(client)
        await ended(client, run_id)
        path = f"/v1/runs/{run_id}/events"
        answer = await client.get(path)
        assert answer.headers["content-type"].startswith("text/event-stream")
        all_events = events(answer.text)
        assert [event[0] for event in all_events] == list(range(1, len(all_events) + 1))
        types = [event[1] for event in all_events]
        assert set(types) == {"status", "progress", "crash", "finished"} and types[-1] == "finished"
        by_type = {type: data for _, type, data in all_events}
        assert by_type["crash"]["kind"] == "oob_index"
        assert by_type["progress"]["measures"]["critical_steps"] == 900
        assert by_type["progress"]["pool_pages"] == 32
        assert by_type["finished"]["verdict"] == "fail" and by_type["finished"]["links"]["report"]
        later = await client.get(path, headers={"Last-Event-ID": "3"})
        assert events(later.text) == all_events[3:]
        for nonsense in ("x", "-1", "٣", "9" * 5000):
            assert (await client.get(path, headers={b"Last-Event-ID": nonsense.encode()})).status_code == 200
        last = await client.get(path, headers={"Last-Event-ID": str(all_events[-1][0])})
        assert (last.status_code, last.text) == (204, "")


async def test_a_finding_fails_the_run_and_one_that_is_waived_does_not(serve: Serve) -> None:
    for findings, verdict in [((FINDING,), "fail"), ((WAIVED,), "pass"), ((WAIVED, FINDING), "fail")]:
        async with serve(FakeExecutor(findings=findings)) as client:
            run_id = await create(client)
            run = await ended(client, run_id)
            told = [
                data
                for _, type, data in events((await client.get(f"/v1/runs/{run_id}/events")).text)
                if type == "finding"
            ]
            report = (await client.get(f"/v1/runs/{run_id}/report")).json()
        assert run["verdict"] == verdict, run["reasons"]
        for shown in (told, run["findings"], report["findings"]):
            assert [(one["kind"], one["count"], one["waived"]) for one in shown] == [
                (finding.kind.value, finding.count, finding.waived) for finding in findings
            ]
        if verdict == "fail":
            assert "findings is 2, expected == 0" in run["reasons"]
        assert report["measures"]["waived_findings"] == (5 if WAIVED in findings else 0)
