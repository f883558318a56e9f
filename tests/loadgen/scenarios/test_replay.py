"""`replay`: requests come in order, at their times, of lengths that fit, and share just what the trace says."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from loadgen.requests.planned_request import PlannedRequest
from loadgen.requests.prompts import PromptMaker
from loadgen.scenarios.base import Observation
from loadgen.scenarios.replay import SMALL_TRACE, Replay, ReplayOptions, block_tokens, scaled_shape, shared_segments
from loadgen.sglang.pages import Pool
from loadgen.sglang.scheduler import NotServable, check_servable
from loadgen.sglang.server import ServerConfiguration
from loadgen.traces.trace import BLOCK_TOKENS, Trace, TracedRequest, parse_trace, read_trace

POOL = Pool(128, 32)
POOLS = st.builds(Pool, st.integers(8, 256), st.integers(4, 400))


def paths(depth: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Blocks of prompts that share beginnings and, as a hash of all before it has it, nothing else."""
    return st.lists(st.integers(0, 1), min_size=depth, max_size=depth).map(
        lambda turns: tuple(int("1" + "".join(map(str, turns[: place + 1])), 2) for place in range(len(turns)))
    )


@st.composite
def traced(draw: st.DrawFn) -> TracedRequest:
    prompt = draw(st.integers(1, 4 * BLOCK_TOKENS))
    blocks = draw(paths(-(-prompt // BLOCK_TOKENS)))
    return TracedRequest(1, draw(st.integers(0, 100)) / 10, prompt, draw(st.integers(1, 3000)), blocks)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    requests = sorted(draw(st.lists(traced(), min_size=1, max_size=8)), key=lambda request: request.seconds or 0)
    return Trace(tuple(requests), 32)


def replay(options: ReplayOptions, trace: Trace | None = None, pool: Pool = POOL) -> Replay:
    scenario = Replay(ServerConfiguration(pool, prefix_cache=True), options, seed=1)
    if trace is not None:
        scenario._trace = trace
        scenario._block = block_tokens(trace, pool, options)
    return scenario


def sent(scenario: Replay, looks: Sequence[float], open_requests: int = 1) -> list[tuple[float, PlannedRequest]]:
    """Requests, with the look at the clock at which each was sent; the first finds nothing open, the others do."""
    requests: list[tuple[float, PlannedRequest]] = []
    for place, at in enumerate(looks):
        wave = scenario.next_wave(Observation(at, (), open_requests if place else 0))
        assert wave.streamed
        requests += [(at, request) for request in wave.requests]
    return requests


def common(one: Sequence[int], other: Sequence[int]) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@settings(max_examples=50)
@given(traces(), st.floats(0.05, 20), st.integers(0, 1000))
def test_requests_come_in_order_none_before_its_scaled_time_and_all_by_then(
    trace: Trace, scale: float, start: int
) -> None:
    looks = [start + look * 0.5 * scale for look in range(22)]
    came = sent(replay(ReplayOptions(time_scale=scale), trace), looks)
    assert len(came) == len(trace.requests)
    for (at, _), request in zip(came, trace.requests, strict=True):
        due = start + (request.seconds or 0) * scale
        assert due - 1e-6 <= at <= due + 0.5 * scale + 1e-6


@given(st.integers(1, 4 * BLOCK_TOKENS), st.lists(traced(), min_size=2, max_size=6), st.integers(0, 9))
def test_prompts_share_just_the_tokens_of_the_blocks_that_both_begin_with(
    block: int, requests: list[TracedRequest], seed: int
) -> None:
    maker = PromptMaker(seed, range(10**9))
    prompts = []
    for number, request in enumerate(requests):
        shape = scaled_shape(request, block)
        shared = shared_segments(request.blocks, shape.prompt_tokens, block, first_key=0)
        prompts.append(maker.prompt(number, PlannedRequest(shape, shared)))
        assert len(prompts[-1]) == shape.prompt_tokens
    for (one, prompt), (other, against) in itertools.combinations(zip(requests, prompts, strict=True), 2):
        blocks = common(one.blocks, other.blocks)
        assert common(prompt, against) == min(blocks * block, len(prompt), len(against))


@given(traces(), POOLS)
def test_fitted_lengths_are_served_whole_and_a_little_longer_ones_would_not_all_be(trace: Trace, pool: Pool) -> None:
    def servable(block: int) -> bool:
        try:
            for request in trace.requests:
                check_servable(scaled_shape(request, block), pool)
        except NotServable:
            return False
        return True

    block = block_tokens(trace, pool, ReplayOptions())
    assert 1 <= block <= BLOCK_TOKENS
    if servable(1):
        assert servable(block)
        assert block == BLOCK_TOKENS or not servable(block + 1)


@given(traced(), st.integers(1, 2000))
def test_lengths_are_scaled_alike_and_never_to_nothing(request: TracedRequest, block: int) -> None:
    shape = scaled_shape(request, block)
    for scaled, tokens in ((shape.prompt_tokens, request.prompt_tokens), (shape.max_new_tokens, request.answer_tokens)):
        assert scaled >= 1 and 0 <= scaled - tokens * block / BLOCK_TOKENS < 1
    assert scaled_shape(request, BLOCK_TOKENS).prompt_tokens == request.prompt_tokens


def test_a_repetition_waits_until_all_is_answered_and_shares_nothing_with_the_one_before() -> None:
    scenario = replay(ReplayOptions(time_scale=0, repeat=2))
    lines = len(read_trace(SMALL_TRACE).requests)
    waves = [scenario.next_wave(Observation(at, (), open_)) for at, open_ in ((0, 0), (1, 3), (2, 0), (3, 0))]
    assert [len(wave.requests) for wave in waves] == [lines, 0, lines, 0]
    keys = [{segment.key for request in wave.requests for segment in request.shared} for wave in waves]
    assert keys[0] and keys[0].isdisjoint(keys[2]) and len(keys[0]) == len(keys[2])
    assert [request.shape for request in waves[0].requests] == [request.shape for request in waves[2].requests]


def test_the_trace_is_repeated_until_the_load_ends_unless_told_otherwise() -> None:
    scenario = replay(ReplayOptions(time_scale=0))
    assert all(scenario.next_wave(Observation(at, (), 0)).requests for at in range(5))


def test_a_trace_without_times_is_a_closed_loop(tmp_path: Path) -> None:
    path = write(tmp_path, *[{"prompt_tokens": 9 + line, "max_new_tokens": 2} for line in range(7)])
    scenario = replay(ReplayOptions(path=path, open_requests=3, repeat=1))
    waves = [scenario.next_wave(Observation(0, (), open_)) for open_ in (0, 3, 1, 2, 0, 0)]
    prompts = [[request.shape.prompt_tokens for request in wave.requests] for wave in waves]
    assert prompts == [[9, 10, 11], [], [12, 13], [14], [15], []]


def test_the_same_trace_gives_the_same_prompts_byte_for_byte() -> None:
    def prompts(looks: list[float]) -> list[list[int]]:
        came = sent(replay(ReplayOptions()), looks)
        maker = PromptMaker(1, range(256))
        return [maker.prompt(number, request) for number, (_, request) in enumerate(came)]

    assert prompts([0, 30]) == prompts([0, 3, 4, 15, 29])


# -- faults


def write(folder: Path, *records: Any) -> str:
    path = folder / "trace.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return str(path)


def test_a_trace_that_cannot_be_read_is_refused_by_its_path(tmp_path: Path) -> None:
    (misfit,) = Replay.faults(POOL, ReplayOptions(path=str(tmp_path / "none")))
    assert (misfit.field, misfit.value) == ("load.options.path", str(tmp_path / "none"))
    assert misfit.message == "there is no such file"


def test_each_bad_line_is_a_fault_of_its_own(tmp_path: Path) -> None:
    good, bad = {"prompt_tokens": 5, "max_new_tokens": 1}, {"prompt_tokens": 5, "max_new_tokens": -1}
    first, second = Replay.faults(POOL, ReplayOptions(path=write(tmp_path, bad, good, bad)))
    assert first.message == "line 1: max_new_tokens is -1; give a whole number of tokens, from 1 to 1,000,000,000"
    assert second.message.startswith("line 3: max_new_tokens")


def test_a_request_that_is_too_long_for_the_pool_is_named_unless_it_is_made_to_fit(tmp_path: Path) -> None:
    path = write(tmp_path, {"prompt_tokens": 50, "max_new_tokens": 9}, {"prompt_tokens": 5000, "max_new_tokens": 100})
    (misfit,) = Replay.faults(POOL, ReplayOptions(path=path, length_scale=1))
    assert (misfit.field, misfit.value) == ("load.options.length_scale", 1)
    assert misfit.message.startswith(
        "line 2: a prompt of 5000 and an answer of 100 tokens, as scaled by 512/512, do not"
    )
    assert Replay.faults(POOL, ReplayOptions(path=path)) == []
    assert 3000 < Replay.longest_request(POOL, ReplayOptions(path=path)) < POOL.tokens


def test_a_pool_that_no_scale_makes_large_enough_is_refused() -> None:
    (misfit,) = Replay.faults(Pool(2, 2), ReplayOptions())
    assert (misfit.field, misfit.value) == ("engine.pool_pages", 2)


@pytest.mark.parametrize("scale", [0, -1, float("inf"), float("nan"), 1001, 1e306, 10**400, "full", None, [1]])
def test_a_scale_that_is_no_factor_is_one_fault(scale: Any) -> None:
    with pytest.raises(ValidationError, match=r"allowed: a number above 0, at most 1000, or fit") as caught:
        ReplayOptions(length_scale=scale)
    assert caught.value.error_count() == 1


@pytest.mark.parametrize(
    "options",
    [
        {"time_scale": -1},
        {"time_scale": 1e306},
        {"time_scale": 10**400},
        {"repeat": 0},
        {"format": "csv"},
        {"path": ""},
        {"speed": 2},
    ],
)
def test_options_out_of_range_or_unknown_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ReplayOptions.model_validate(options)


def test_the_small_trace_fits_the_usual_pool_as_it_is_and_the_prefix_cache_is_on() -> None:
    assert Replay.faults(POOL, ReplayOptions(length_scale=1)) == []
    assert "--disable-radix-cache" not in Replay.engine_needs(POOL, ReplayOptions()).arguments
    assert "--disable-radix-cache" in Replay.engine_needs(POOL, ReplayOptions(prefix_cache=False)).arguments


def test_the_examples_of_the_page_are_traces() -> None:
    page = (Path(__file__).parents[3] / "docs" / "replay.md").read_text()
    mooncake, lengths = (parse_trace(block.splitlines()) for block in re.findall(r"((?:    \{.*\n)+)", page))
    assert (len(mooncake.requests), mooncake.blocks, mooncake.timed) == (3, 5, True)
    assert (len(lengths.requests), lengths.blocks, lengths.timed) == (3, 0, False)
