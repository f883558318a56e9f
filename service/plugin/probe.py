"""Probe: AROUND hooks on the allocator and on retraction that watch and change nothing.

Only tensors that are on the CPU already are looked at, so no hook waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .flight import Outcome
from .metrics import MetricsPublisher
from .recorder import FlightRecorder
from .settings import Settings

_ALLOCATOR = "sglang.srt.hardware_backend.npu.allocator_npu.NPUPagedTokenToKVPoolAllocator"
_BATCH = "sglang.srt.managers.schedule_batch.ScheduleBatch"

# In Python 3.11 to look up a member of an enum is a function call, too much for what each decode step pays.
_RETURNED, _SHORT = Outcome.RETURNED, Outcome.SHORT


def page_demand(seq_lens: list[int], page_size: int) -> tuple[int, int]:
    """Pages that a decode step needs, and rows behind the last row that needs one.

    Args:
        seq_lens: tokens of each batch row, the token being decoded included.
        page_size: tokens a page.
    """
    needing = [row for row, length in enumerate(seq_lens) if length % page_size == 1]
    if not needing:
        return 0, 0
    return len(needing), len(seq_lens) - 1 - needing[-1]


class Probe:
    """The hooks, and the recorder they write. The recorder is opened by the first allocation in the process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._recorder: FlightRecorder | None = None

    def targets(self) -> dict[str, Callable[..., Any]]:
        """What to hook, by dotted name."""
        return {
            f"{_ALLOCATOR}.alloc_decode": self.around_alloc_decode,
            f"{_ALLOCATOR}.alloc_extend": self.around_alloc_extend,
            f"{_BATCH}.retract_decode": self.around_retract_decode,
        }

    def around_alloc_decode(
        self, original: Callable[..., Any], allocator: Any, seq_lens: Any, seq_lens_cpu: Any, last_loc: Any, **more: Any
    ) -> Any:
        recorder = self._recorder or self._open(allocator)
        lengths = seq_lens_cpu.tolist()
        need, trailing = page_demand(lengths, allocator.page_size)
        free = allocator.free_pages.numel()  # torch's own len() is written in Python
        if need > free:
            # The allocator falls back on pages that were freed and not yet sorted in.
            free = allocator.available_size() // allocator.page_size
        recorder.enter(len(lengths), need, free, trailing)
        try:
            out = original(allocator, seq_lens, seq_lens_cpu, last_loc, **more)
        except BaseException as error:
            recorder.leave(Outcome.RAISED)
            recorder.raised(error)
            raise
        recorder.leave(_SHORT if out is None else _RETURNED)
        return out

    def around_alloc_extend(self, original: Callable[..., Any], allocator: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = self._recorder or self._open(allocator)
        recorder.extended()
        try:
            return original(allocator, *args, **kwargs)
        except BaseException as error:
            recorder.raised(error)
            raise

    def around_retract_decode(self, original: Callable[..., Any], batch: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(batch, *args, **kwargs)
        if self._recorder is not None:
            self._recorder.retracted(len(result[0]))
        return result

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


def _tensor_parallel_rank() -> int:
    import torch.distributed

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    return 0
