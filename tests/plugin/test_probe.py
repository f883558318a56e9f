"""Claims about the probe: it sees what is about to happen, and changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.plugin import probe as probe_module
from service.plugin.flight import AllocationOutcome
from service.plugin.flight_reader import FlightReader
from service.plugin.probe import Probe, extend_demand, page_demand
from service.plugin.settings import Allocator, Profile, Settings

from .stand_ins import CpuTensor, DeviceTensor, put, put_torch

PAGE = 16


class AllocatorStandIn:
    """What the probe looks at on SGLang's allocator."""

    def __init__(self, free: int, staged: int = 0) -> None:
        self.page_size = PAGE
        self.size = 32 * PAGE
        self.free_pages = CpuTensor(range(free))
        self.staged = staged

    def available_size(self) -> int:
        return (len(self.free_pages) + self.staged) * self.page_size


class Publisher:
    """In place of the thread that publishes metrics."""

    started: list[int]

    def __init__(self, totals: Any, *, pool_pages: int) -> None:
        self.pool_pages = pool_pages

    def start(self) -> None:
        Publisher.started.append(self.pool_pages)


@pytest.fixture
def flight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    put(monkeypatch, "sglang", __version__="0.5.23")
    put_torch(monkeypatch)
    Publisher.started = []
    monkeypatch.setattr(probe_module, "MetricsPublisher", Publisher)
    return tmp_path / "flight.bin"


def probe(flight: Path) -> Probe:
    return Probe(Settings(str(flight), Allocator.UNPATCHED, Profile.REHEARSAL))


def prefill(watched: Probe, allocator: Any, rows: list[tuple[int, int]], original: Any = lambda *_: "locations") -> Any:
    """A prefill of rows, each given as its tokens before and after."""
    before, after = (CpuTensor(lengths) for lengths in zip(*rows, strict=True))
    return watched.around_alloc_extend(
        original, allocator, DeviceTensor(), before, DeviceTensor(), after, DeviceTensor(), sum(after) - sum(before)
    )


class PrefixCache:
    """What the probe looks at on SGLang's prefix cache."""

    page_size = PAGE

    def __init__(self, pages: int, *, of_several_kinds: bool = False) -> None:
        self.pages = pages
        self.of_several_kinds = of_several_kinds

    def supports_swa(self) -> bool:
        return self.of_several_kinds

    def supports_mamba(self) -> bool:
        return False

    def evictable_size(self) -> int:
        # What 0.5.18 does for a cache of several kinds.
        if self.of_several_kinds:
            raise NotImplementedError
        return self.pages * PAGE

    def full_evictable_size(self) -> int:
        # The base class's answer, which a cache of one kind may leave as it is.
        return self.pages * PAGE if self.of_several_kinds else 0


def decode(watched: Probe, allocator: Any, lengths: list[int], original: Any = lambda *_: "locations") -> Any:
    return watched.around_alloc_decode(original, allocator, DeviceTensor(), CpuTensor(lengths), DeviceTensor())


@given(st.lists(st.integers(1, 600), max_size=40), st.integers(2, 64))
def test_demand_is_that_of_the_allocators_own_formula(lengths: list[int], page_size: int) -> None:
    need = [int(length % page_size == 1) for length in lengths]
    start = [sum(need[:row]) for row in range(len(need))]  # cumsum(need) - need
    clamped = [row for row, first in enumerate(start) if first > sum(need) - 1]
    assert page_demand(lengths, page_size) == (sum(need), len(clamped) if sum(need) else 0)


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=9), st.integers(1, 40))
def test_demand_of_a_prefill_is_the_pages_that_its_tokens_open(rows: list[tuple[int, int]], page_size: int) -> None:
    opened = sum(token % page_size == 0 for before, more in rows for token in range(before, before + more))
    assert extend_demand([before for before, _ in rows], [sum(row) for row in rows], page_size) == opened


def test_a_step_is_recorded_before_the_allocator_is_called(flight: Path) -> None:
    seen = []

    def original(*_: Any) -> str:
        seen.append(FlightReader(flight).last(1)[0])
        return "locations"

    assert decode(probe(flight), AllocatorStandIn(free=2), [17, 20, 33, 18, 19], original) == "locations"
    (before,) = seen
    assert (before.batch_size, before.need, before.free, before.trailing) == (5, 2, 2, 2)
    assert before.critical and before.outcome is AllocationOutcome.ENTERED
    assert FlightReader(flight).last(1)[0].outcome is AllocationOutcome.RETURNED


def test_none_is_a_shortfall(flight: Path) -> None:
    assert decode(probe(flight), AllocatorStandIn(free=0), [17], lambda *_: None) is None
    reader = FlightReader(flight)
    assert reader.last(1)[0].outcome is AllocationOutcome.SHORT
    assert reader.totals().shortfalls == 1


@pytest.mark.parametrize("error", [IndexError("index 1 is out of bounds"), KeyboardInterrupt(), SystemExit(3)])
def test_an_exception_passes_through_as_it_is_and_is_kept(flight: Path, error: BaseException) -> None:
    def original(*_: Any) -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        decode(probe(flight), AllocatorStandIn(free=1), [17, 18], original)
    assert raised.value is error
    reader = FlightReader(flight)
    assert reader.last(1)[0].outcome is AllocationOutcome.RAISED
    assert (reader.error(), reader.totals().exceptions) == (f"{type(error).__name__}: {error}", 1)


def test_arguments_reach_the_allocator_as_they_were_given(flight: Path) -> None:
    got: list[Any] = []
    allocator, on_device, on_cpu = AllocatorStandIn(free=9), DeviceTensor(), CpuTensor([5])
    hook = probe(flight).around_alloc_decode
    hook(lambda *args, **more: got.append((args, more)), allocator, on_device, on_cpu, on_device, later="argument")
    ((args, more),) = got
    assert [id(arg) for arg in args] == [id(allocator), id(on_device), id(on_cpu), id(on_device)]
    assert more == {"later": "argument"}
    # SGLang names its arguments in some releases.
    hook(lambda *args, **more: None, allocator, seq_lens=on_device, seq_lens_cpu=on_cpu, last_loc=on_device)


def test_arguments_of_a_prefill_reach_the_allocator_as_they_were_given(flight: Path) -> None:
    got: list[Any] = []
    allocator, on_device, before, after = AllocatorStandIn(free=9), DeviceTensor(), CpuTensor([5]), CpuTensor([7])
    hook = probe(flight).around_alloc_extend
    given = (on_device, before, on_device, after, on_device, 2)
    hook(lambda *args, **more: got.append((args, more)), allocator, *given, num_new_pages=0)
    ((args, more),) = got
    assert list(map(id, args)) == list(map(id, (allocator, *given)))
    assert more == {"num_new_pages": 0}
    # SGLang names its arguments where it takes pages for a request from another engine.
    names = ("prefix_lens", "prefix_lens_cpu", "seq_lens", "seq_lens_cpu", "last_loc", "extend_num_tokens")
    assert hook(lambda *args, **more: "locations", allocator, **dict(zip(names, given, strict=True))) == "locations"


def test_pages_not_yet_sorted_in_count_as_free_where_the_allocator_falls_back_on_them(flight: Path) -> None:
    watched = probe(flight)
    decode(watched, AllocatorStandIn(free=1, staged=3), [17, 33, 18])
    decode(watched, AllocatorStandIn(free=2, staged=3), [17, 33, 18])
    assert [step.free for step in FlightReader(flight).steps()] == [4, 2]


def test_prefills_and_retractions_are_counted_with_the_step_that_follows(flight: Path) -> None:
    watched, allocator = probe(flight), AllocatorStandIn(free=9)
    assert prefill(watched, allocator, [(0, 5)]) == "locations"
    prefill(watched, allocator, [(0, 5)])
    retracted = (["one", "two"], 0.7, [])
    assert watched.around_retract_decode(lambda batch, *args: retracted, "batch", "server_args") is retracted
    decode(watched, allocator, [5])
    decode(watched, allocator, [6])
    reader = FlightReader(flight)
    assert [(step.prefill_batches, step.retractions) for step in reader.steps()] == [(2, 2), (0, 0)]
    assert (reader.totals().prefill_batches, reader.totals().retractions) == (2, 2)


def test_an_exception_out_of_a_prefill_is_kept_too(flight: Path) -> None:
    def original(*_: Any) -> None:
        raise MemoryError("no page")

    with pytest.raises(MemoryError):
        prefill(probe(flight), AllocatorStandIn(free=1), [(0, 5)], original)
    assert FlightReader(flight).error() == "MemoryError: no page"


@pytest.mark.parametrize(
    ("rows", "free", "staged", "tight"),
    [
        ([(0, 2 * PAGE)], 2, 0, True),
        ([(0, 2 * PAGE)], 3, 0, False),
        ([(0, 2 * PAGE + 1)], 2, 1, True),  # falls back on the page that was not yet sorted in
        ([(0, 2 * PAGE)], 2, 1, True),
        ([(PAGE, PAGE + 1), (3, 9), (0, 1)], 2, 0, True),
        ([(3, 9)], 0, 0, False),  # needs none
    ],
)
def test_a_prefill_that_needs_exactly_the_free_pages_is_tight(
    flight: Path, rows: list[tuple[int, int]], free: int, staged: int, tight: bool
) -> None:
    prefill(probe(flight), AllocatorStandIn(free, staged), rows)
    totals = FlightReader(flight).totals()
    assert (totals.prefill_batches, totals.tight_prefill_batches) == (1, int(tight))


@pytest.mark.parametrize("of_several_kinds", [False, True])
def test_pages_that_could_be_evicted_are_told_of_whatever_cache_there_is(flight: Path, of_several_kinds: bool) -> None:
    watched, cache = probe(flight), PrefixCache(7, of_several_kinds=of_several_kinds)
    decode(watched, AllocatorStandIn(free=9), [5])
    assert watched.around_create_tree_cache(lambda context: (cache, context)[0], "context") is cache
    decode(watched, AllocatorStandIn(free=9), [6])
    cache.pages = 3
    decode(watched, AllocatorStandIn(free=9), [7])
    assert [step.cached for step in FlightReader(flight).steps()] == [0, 7, 3]


def test_evicted_pages_are_counted_with_the_step_that_follows(flight: Path) -> None:
    watched, allocator, cache = probe(flight), AllocatorStandIn(free=9), PrefixCache(7)
    evicted = watched.around_update_eviction_metrics
    assert evicted(lambda *_: None, cache, 4 * PAGE, 0.5) is None  # nothing is recorded yet
    decode(watched, allocator, [5])
    assert evicted(lambda *args: args, cache, 2 * PAGE, 0.5) == (cache, 2 * PAGE, 0.5)
    evicted(lambda *_, **__: None, cache, 3 * PAGE, start_time=0.5)
    decode(watched, allocator, [6])
    decode(watched, allocator, [7])
    reader = FlightReader(flight)
    assert [step.evicted_pages for step in reader.steps()] == [0, 5, 0]
    assert reader.totals().evicted_pages == 5


def test_a_retraction_before_any_allocation_passes_through(flight: Path) -> None:
    assert probe(flight).around_retract_decode(lambda batch: ([], 1.0, []), "batch") == ([], 1.0, [])
    assert not flight.exists()


def test_the_recording_is_opened_by_the_first_allocation_with_what_the_engine_is(flight: Path) -> None:
    watched = probe(flight)
    assert not flight.exists()
    decode(watched, AllocatorStandIn(free=9), [5])
    decode(watched, AllocatorStandIn(free=9), [6])
    identity = FlightReader(flight).identity
    assert (identity.page_size, identity.pool_pages) == (PAGE, 32)
    assert (identity.sglang_version, identity.allocator, identity.rank) == ("0.5.23", "unpatched", 0)
    assert Publisher.started == [32]


def test_other_ranks_keep_recordings_of_their_own_and_publish_nothing(
    flight: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_torch(monkeypatch, rank=3)
    decode(probe(flight), AllocatorStandIn(free=9), [5])
    assert not flight.exists()
    assert FlightReader(f"{flight}.rank3").identity.rank == 3
    assert Publisher.started == []


def test_it_hooks_the_allocators_methods_retraction_and_the_prefix_cache(flight: Path) -> None:
    watched = probe(flight)
    assert watched.targets() == {
        "sglang.srt.hardware_backend.npu.allocator_npu.NPUPagedTokenToKVPoolAllocator.alloc_decode": (
            watched.around_alloc_decode
        ),
        "sglang.srt.hardware_backend.npu.allocator_npu.NPUPagedTokenToKVPoolAllocator.alloc_extend": (
            watched.around_alloc_extend
        ),
        "sglang.srt.managers.schedule_batch.ScheduleBatch.retract_decode": watched.around_retract_decode,
        "sglang.srt.mem_cache.registry.create_tree_cache": watched.around_create_tree_cache,
        "sglang.srt.mem_cache.base_prefix_cache.BasePrefixCache.update_eviction_metrics": (
            watched.around_update_eviction_metrics
        ),
    }
