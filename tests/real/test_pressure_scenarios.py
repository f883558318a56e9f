"""Scenarios that bring a real server to the edge from other sides: each gets there, and nothing fails."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from loadgen.sglang.limits import longest_admitted_prompt
from loadgen.sglang.pages import Pool
from tests.real.soaks import Soak, soak

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

WITH_CLAMP = "0.5.23"
POOL = Pool(128, 32)


def soaked(folder: Path, scenario: str, *arguments: str) -> Soak:
    ended = soak(
        folder, "--engine", WITH_CLAMP, "--scenario", scenario, "--seed", "3", "--min-critical", "1", *arguments
    )
    measures = ended.report["measures"]
    print({name: value for name, value in measures.items() if name.endswith(("_steps", "requests", "retractions"))})
    assert measures["failed_requests"] == 0 and ended.report["crashes"] == [], ended.output
    return ended


def requests(ended: Soak) -> list[dict[str, Any]]:
    waves = map(json.loads, (ended.folder / "plan.jsonl").read_text().splitlines())
    return [request for wave in waves for request in wave["requests"]]


def test_churn_retracts_again_and_again_and_goes_on_answering(tmp_path: Path) -> None:
    ended = soaked(tmp_path, "churn", "--duration", "15s")
    measures = ended.report["measures"]
    assert ended.exit_code == 0, ended.output
    assert measures["retractions"] > 0.02 * measures["decode_steps"]
    assert measures["critical_steps"] > 0.03 * measures["decode_steps"]


def test_burst_fills_the_pool_from_an_idle_server(tmp_path: Path) -> None:
    ended = soaked(tmp_path, "burst", "--duration", "15s", "--option", "requests=40")
    assert ended.report["measures"]["crossing_steps"] > 0
    assert ended.report["measures"]["requests"]["done"] >= 40


def test_extend_reaches_the_end_of_the_pool_and_lives_with_what_is_never_served(tmp_path: Path) -> None:
    ended = soaked(tmp_path, "extend", "--duration", "30s")
    measures = ended.report["measures"]
    assert measures["critical_steps"] > 0 and measures["tight_prefill_batches"] == 0
    assert measures["requests"]["hung_up"] >= 1
    assert max(request["prompt_tokens"] for request in requests(ended)) > longest_admitted_prompt(POOL)
    for found in ended.report["findings"]:
        assert found["kind"] == "starved" and found["shortest_prompt_tokens"] > longest_admitted_prompt(POOL), found


def test_extend_with_mixed_chunks_has_prefills_that_take_the_last_page(tmp_path: Path) -> None:
    mixed = ("--option", "mixed_chunk=true", "--option", "beyond=false")
    ended = soaked(tmp_path, "extend", "--duration", "20s", *mixed)
    assert ended.report["measures"]["tight_prefill_batches"] > 0


def test_replay_sends_the_small_trace_and_its_shared_prefixes_are_found_in_the_cache(tmp_path: Path) -> None:
    ended = soaked(tmp_path, "replay", "--duration", "20s", "--option", "time_scale=0.1")
    assert ended.report["measures"]["requests"]["done"] > 0
    found = [int(count) for count in re.findall(r"#cached-token: (\d+)", (ended.folder / "engine.log").read_text())]
    assert sum(found) >= 10 * POOL.page_size


def test_abort_comes_to_the_edge_while_clients_hang_up(tmp_path: Path) -> None:
    ended = soaked(tmp_path, "abort", "--duration", "15s")
    measures = ended.report["measures"]
    assert ended.exit_code == 0, ended.output
    assert measures["requests"]["hung_up"] > 0 and measures["requests"]["done"] > 0


def test_ballast_makes_a_pool_tight_that_long_requests_fill(tmp_path: Path) -> None:
    ended = soaked(tmp_path, "ballast", "--pool-pages", "256", "--duration", "20s")
    assert ended.exit_code == 0, ended.output
    assert ended.report["measures"]["critical_share"] > 0.5
    assert max(request["prompt_tokens"] for request in requests(ended)) > 10_000
