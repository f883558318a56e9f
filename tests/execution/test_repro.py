"""Claims about `repro.yaml`: whatever made the load, the file makes it again on the same engine, and says of what."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from loadgen.requests.planned_request import PlannedRequest
from loadgen.requests.wave import SentWave, Wave
from loadgen.scenarios.waves.scenario import MOST_REQUESTS, Waves, WavesOptions
from loadgen.sglang.pages import Pool
from loadgen.sglang.server import ServerConfiguration
from loadgen.sglang.shape import Segment, Shape
from service.engine.crash.crash import Crash
from service.execution.repro import CRASH_LABEL, keep_repro
from service.runs.folder import files_of_a_run
from service.runs.model import Finding, FindingKind, Run
from service.spec.parsing import parse_spec
from service.spec.spec import RunSpec
from service.spec.yaml_text import load_yaml
from tests.fake_executor import CRASH

SPEC: dict[str, Any] = {
    "name": "nightly",
    "engine": {"allocator": "unpatched", "pool_pages": 64, "args": ["--tp", "2"], "port": 30000},
    "load": {"scenario": "tight", "duration": "10m", "seed": 7, "options": {"queue": 32}},
    "thresholds": ["critical_share >= 80%"],
}
WAVES = [
    SentWave(0.0, 0, 0, 1, Wave.of([Shape(5, 9)] * 3)),
    SentWave(0.5, 90, 0, 4, Wave.of([Shape(105, 25), Shape(104, 26)])),
    SentWave(0.6, 100, 2, 6, Wave((PlannedRequest(Shape(300, 2), (Segment(7, 128),), hang_up_tokens=1),))),
]


def repro(
    folder: Path,
    sent: list[SentWave],
    spec: dict[str, Any] | None = None,
    cache: bool = False,
    failure: Crash | Finding = CRASH,
) -> tuple[RunSpec, WavesOptions]:
    """The spec in a folder, as it is read back."""
    run = Run(id="some-run", spec=parse_spec(spec or SPEC), folder=folder, created_at=datetime.now(timezone.utc))
    server = ServerConfiguration(Pool(128, 64), prefix_cache=cache)
    assert keep_repro(run, failure, sent, "0.5.18", server) == {"repro": "repro.yaml"}
    assert files_of_a_run(folder) == ["repro.yaml"]
    read = parse_spec(load_yaml(folder / "repro.yaml"))
    return read, WavesOptions.model_validate(read.load.options)


def test_it_launches_the_engine_that_crashed_alike(tmp_path: Path) -> None:
    spec, options = repro(tmp_path, WAVES)
    engine = parse_spec(SPEC).engine.model_copy(update={"name": "0.5.18", "port": None})
    assert spec.engine == engine, "all but the port, which may be taken when it is run"
    assert (options.made_by, options.made_with) == ("tight", {"queue": 32})
    assert (spec.load.scenario, spec.load.seed, spec.load.duration) == ("waves", 7, 600.0)
    assert spec.name == "repro of nightly" and spec.labels == {"repro_of": "some-run", CRASH_LABEL: "oob_index"}


def test_what_looks_at_the_answers_does_so_again_and_it_ends_with_its_waves(tmp_path: Path) -> None:
    load = {**SPEC["load"], "witness_share": 0.5, "starve_seconds": 3, "until_coverage": 0.9}
    waivers = [{"kind": "starved", "when": "release == 0.5.18", "reason": "known", "link": "https://example.org"}]
    spec, _ = repro(tmp_path, WAVES, {**SPEC, "load": load, "waivers": waivers})
    assert (spec.load.witness_share, spec.load.starve_seconds, spec.load.until_coverage) == (0.5, 3.0, None)
    assert spec.waivers == parse_spec({"waivers": waivers}).waivers


def test_a_finding_leaves_one_as_well(tmp_path: Path) -> None:
    at = datetime.now(timezone.utc)
    told = {"kind": FindingKind.STARVED, "cause": "c", "detail": "d", "at": at, "last_at": at, "elapsed_seconds": 1}
    lengths = dict.fromkeys(("prompt_tokens", "max_new_tokens", "shortest_prompt_tokens", "longest_prompt_tokens"), 5)
    spec, _ = repro(tmp_path, WAVES, failure=Finding(**told, **lengths))
    assert spec.labels == {"repro_of": "some-run", "finding": "starved"}


def test_it_sends_what_was_sent_since_the_server_was_idle_with_the_same_numbers(tmp_path: Path) -> None:
    _, options = repro(tmp_path, WAVES)
    assert [wave.model_dump(exclude_defaults=True) for wave in options.waves] == [
        {"requests": "4:105+25 104+26"},
        {"after_steps": 10, "requests": "300+2&7x128!1"},
    ]
    cached = tmp_path / "cached"
    cached.mkdir()
    assert len(repro(cached, WAVES, cache=True)[1].waves) == 3, "a prefix cache outlives idle moments"


def test_an_engine_that_survives_it_at_the_edge_passes(tmp_path: Path) -> None:
    defaults = ("crashes == 0", "failed_requests == 0", "findings == 0")
    assert repro(tmp_path, WAVES)[0].thresholds == (*defaults, "critical_steps >= 1")


def test_the_repro_of_a_repro_names_who_made_the_waves_at_first(tmp_path: Path) -> None:
    spec, first = repro(tmp_path, WAVES)
    waves = Waves(ServerConfiguration(Pool(128, 64)), first, seed=7)
    sent = [SentWave(0.1, 0, 0, 1, Wave(waves.options.requests()[0]))]
    again, options = repro(tmp_path, sent, json.loads(spec.model_dump_json()))
    assert (options.made_by, options.made_with) == ("tight", {"queue": 32})
    assert options.waves[0].requests == "4:105+25 104+26"
    assert again.engine == spec.engine


def test_the_end_of_a_long_load_is_a_file_that_can_be_read_and_says_that_it_begins_in_the_middle(
    tmp_path: Path,
) -> None:
    sent = [
        SentWave(place / 9, 5 * (place // 2), 80, 1 + 2 * place, Wave.of([Shape(3000 + place, 99)] * 2, streamed=True))
        for place in range(5000)
    ]
    spec, options = repro(tmp_path, sent)
    assert options.requests()[-1][-1].number == 10_000
    assert spec.labels["begins"].startswith("in the middle")
    assert (tmp_path / "repro.yaml").stat().st_size < 1_000_000
    short = [SentWave(0.0, 0, 0, 1, Wave.of([Shape(5, 9)])), *(sent[-9:])]
    assert "begins" not in repro(tmp_path, short)[0].labels


def test_of_more_requests_than_a_file_can_hold_the_last_waves_are_kept(tmp_path: Path) -> None:
    large = Wave.of([Shape(5, 9)] * (MOST_REQUESTS // 3))
    sent = [SentWave(float(place), place, 1, 1 + place * len(large.requests), large) for place in range(5)]
    spec, options = repro(tmp_path, sent)
    assert [len(requests) for requests in options.requests()] == [len(large.requests)] * 3
    assert "in the middle" in spec.labels["begins"]


def test_without_a_wave_there_is_no_repro(tmp_path: Path) -> None:
    run = Run(id="some-run", spec=parse_spec(SPEC), folder=tmp_path, created_at=datetime.now(timezone.utc))
    assert keep_repro(run, CRASH, [], "0.5.18", ServerConfiguration(Pool(128, 64))) == {}
    assert files_of_a_run(tmp_path) == []
