"""What the probe's hook costs by itself. Run by the engine's interpreter, with the overlay on its path.

SGLang's own hook registry puts the hook around an allocator that returns at once. What a call takes with the hook, less
what it takes without, is what a decode step pays at least: here the hook's code is always in the processor's caches.
Prints nanoseconds of CPU time, one JSON number.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from lastpage_plugin.probe import Probe
from lastpage_plugin.settings import Allocator, Profile, Settings
from sglang.srt.plugins.hook_registry import HookRegistry, HookType

_CALLS = 5_000
_REPEATS = 21
_PAGE_SIZE = 128
# A tenth of the rows need a page, as many as in a steady load of answers a few pages long.
_NEEDING = 10


class BareAllocator:
    """As much of SGLang's allocator as the probe looks at."""

    page_size = _PAGE_SIZE

    def __init__(self, pages: int) -> None:
        self.size = pages * _PAGE_SIZE
        self.free_pages = torch.arange(1, pages + 1)

    def alloc_decode(self, seq_lens: Any, seq_lens_cpu: Any, last_loc: Any) -> Any:
        return last_loc


class HookedAllocator(BareAllocator):
    """The same, with a method of its own to put the hook around."""

    def alloc_decode(self, seq_lens: Any, seq_lens_cpu: Any, last_loc: Any) -> Any:
        return last_loc


class BareCache:
    """As much of SGLang's prefix cache as the probe asks in a step, and as many calls deep as UnifiedRadixCache."""

    def __init__(self) -> None:
        self._evictable = {"full": 9 * _PAGE_SIZE}

    def supports_swa(self) -> bool:
        return False

    def supports_mamba(self) -> bool:
        return False

    def evictable_size(self) -> int:
        return self._evictable_of("full")

    def _evictable_of(self, component: str) -> int:
        return self._evictable.get(component, 0)


def nanoseconds_per_step(rows: int, pages: int) -> float:
    """The median over some repeats, for a batch of `rows` and a free list of `pages`."""
    lengths = torch.tensor([_PAGE_SIZE + 1 + row % _NEEDING for row in range(rows)])
    with tempfile.TemporaryDirectory() as folder:
        flight = str(Path(folder) / "flight.bin")
        probe = Probe(Settings(flight=flight, allocator=Allocator.INSTALLED, profile=Profile.REHEARSAL))
        probe.around_create_tree_cache(BareCache)
        target = f"{__name__}.{HookedAllocator.__name__}.alloc_decode"
        HookRegistry.register(target, probe.around_alloc_decode, HookType.AROUND)
        HookRegistry.apply_hooks()
        bare, hooked = BareAllocator(pages), HookedAllocator(pages)
        costs = [_seconds(hooked, lengths) - _seconds(bare, lengths) for _ in range(_REPEATS)]
    return 1e9 * statistics.median(costs) / _CALLS


def _seconds(allocator: BareAllocator, lengths: Any) -> float:
    began = time.thread_time()
    for _ in range(_CALLS):
        allocator.alloc_decode(lengths, lengths, lengths)
    return time.thread_time() - began


if __name__ == "__main__":
    print(json.dumps(nanoseconds_per_step(int(sys.argv[1]), int(sys.argv[2]))))
