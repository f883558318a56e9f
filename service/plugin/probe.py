"""Probe: AROUND hooks on the allocator, on retraction and on the prefix cache that watch and change nothing.

Only tensors that are on the CPU already are looked at, so no hook waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .flight import AllocationOutcome
from .metrics import MetricsPublisher
from .recorder import FlightRecorder
from .settings import Settings

_ALLOCATOR = "sglang.srt.hardware_backend.npu.allocator_npu.NPUPagedTokenToKVPoolAllocator"
_BATCH = "sglang.srt.managers.schedule_batch.ScheduleBatch"
# Releases differ in the classes of their prefix caches: 0.5.18 has RadixCache and, without the cache, ChunkCache;
# 0.5.23 has UnifiedRadixCache for both. All are made by this function, and report to this method what they evicted.
_MAKE_CACHE = "sglang.srt.mem_cache.registry.create_tree_cache"
_REPORT_EVICTION = "sglang.srt.mem_cache.base_prefix_cache.BasePrefixCache.update_eviction_metrics"

# In Python 3.11 to look up a member of an enum is a function call, too much for what each decode step pays.
_RETURNED, _SHORT = AllocationOutcome.RETURNED, AllocationOutcome.SHORT


def page_demand(seq_lens: list[int], page_size: int) -> tuple[int, int]:
    """Pages that a decode step needs, and trailing rows, those after the last row that needs one.

    Args:
        seq_lens: tokens of each batch row, the token being decoded included.
        page_size: tokens a page.
    """
    needing = [row for row, length in enumerate(seq_lens) if length % page_size == 1]
    if not needing:
        return 0, 0
    return len(needing), len(seq_lens) - 1 - needing[-1]


def extend_demand(prefix_lens: list[int], seq_lens: list[int], page_size: int) -> int:
    """Pages that a prefill batch needs.

    Args:
        prefix_lens: tokens of each row that are in pages already.
        seq_lens: tokens of each row after the prefill.
        page_size: tokens a page.
    """
    return sum(-(-length // page_size) for length in seq_lens) - sum(-(-length // page_size) for length in prefix_lens)


class Probe:
    """The hooks, and the recorder they write. The recorder is opened by the first allocation in the process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._recorder: FlightRecorder | None = None
        self._evictable_tokens: Callable[[], int] | None = None

    def targets(self) -> dict[str, Callable[..., Any]]:
        """What to hook, by dotted name."""
        return {
            f"{_ALLOCATOR}.alloc_decode": self.around_alloc_decode,
            f"{_ALLOCATOR}.alloc_extend": self.around_alloc_extend,
            f"{_BATCH}.retract_decode": self.around_retract_decode,
            _MAKE_CACHE: self.around_create_tree_cache,
            _REPORT_EVICTION: self.around_update_eviction_metrics,
        }

    def around_alloc_decode(
        self, original: Callable[..., Any], allocator: Any, seq_lens: Any, seq_lens_cpu: Any, last_loc: Any, **more: Any
    ) -> Any:
        recorder = self._recorder or self._open(allocator)
        lengths = seq_lens_cpu.tolist()
        page_size = allocator.page_size
        need, trailing = page_demand(lengths, page_size)
        cached = self._evictable_tokens() // page_size if self._evictable_tokens is not None else 0
        recorder.enter(len(lengths), need, _free_pages(allocator, need), trailing, cached)
        try:
            out = original(allocator, seq_lens, seq_lens_cpu, last_loc, **more)
        except BaseException as error:
            recorder.leave(AllocationOutcome.RAISED)
            recorder.raised(error)
            raise
        recorder.leave(_SHORT if out is None else _RETURNED)
        return out

    def around_alloc_extend(
        self,
        original: Callable[..., Any],
        allocator: Any,
        prefix_lens: Any,
        prefix_lens_cpu: Any,
        seq_lens: Any,
        seq_lens_cpu: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        recorder = self._recorder or self._open(allocator)
        need = extend_demand(prefix_lens_cpu.tolist(), seq_lens_cpu.tolist(), allocator.page_size)
        recorder.count("prefill_batches")
        if 0 < need == _free_pages(allocator, need):
            recorder.count("tight_prefill_batches")
        try:
            return original(allocator, prefix_lens, prefix_lens_cpu, seq_lens, seq_lens_cpu, *args, **kwargs)
        except BaseException as error:
            recorder.raised(error)
            raise

    def around_retract_decode(self, original: Callable[..., Any], batch: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(batch, *args, **kwargs)
        if self._recorder is not None:
            self._recorder.count("retractions", len(result[0]))
        return result

    def around_create_tree_cache(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        cache = original(*args, **kwargs)
        # schedule_policy.py asks the same one for what it could evict.
        of_several_kinds = cache.supports_swa() or cache.supports_mamba()
        self._evictable_tokens = cache.full_evictable_size if of_several_kinds else cache.evictable_size
        return cache

    def around_update_eviction_metrics(
        self, original: Callable[..., Any], cache: Any, num_evicted: int, *args: Any, **kwargs: Any
    ) -> Any:
        if self._recorder is not None:
            # A prefix cache keeps whole pages.
            self._recorder.count("evicted_pages", num_evicted // cache.page_size)
        return original(cache, num_evicted, *args, **kwargs)

    def _open(self, allocator: Any) -> FlightRecorder:
        import sglang

        rank = _tensor_parallel_rank()
        # Ranks of one engine take the same scheduling decisions; each keeps its own recording.
        path = self._settings.flight if rank == 0 else f"{self._settings.flight}.rank{rank}"
        self._recorder = FlightRecorder(
            path,
            page_size=allocator.page_size,
            pool_pages=allocator.size // allocator.page_size,
            sglang_version=sglang.__version__,
            allocator=self._settings.allocator.value,
            rank=rank,
        )
        if rank == 0:
            MetricsPublisher(self._recorder.totals, pool_pages=allocator.size // allocator.page_size).start()
        return self._recorder


def _free_pages(allocator: Any, need: int) -> int:
    """Free pages, as the allocator will count them for a need of so many."""
    free: int = allocator.free_pages.numel()  # torch's own len() is written in Python
    if need > free:
        # It falls back on pages that were freed and not yet sorted in.
        free = allocator.available_size() // allocator.page_size
    return free


def _tensor_parallel_rank() -> int:
    import torch.distributed

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    return 0
