"""A fault for an engine: now and then its allocator hands a page that one row has to another row as well.

It is a plugin of SGLang's own kind, beside that of the project, and only in engines whose environment names its folder.
"""

from __future__ import annotations

from pathlib import Path

EVERY_CROSSING_STEPS = 5

_PLUGIN = f"""
_seen = 0

def register():
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    target = "sglang.srt.hardware_backend.npu.allocator_npu.NPUPagedTokenToKVPoolAllocator.alloc_decode"
    HookRegistry.register(target, around_alloc_decode, HookType.AROUND)

def around_alloc_decode(original, allocator, seq_lens, seq_lens_cpu, last_loc, **more):
    global _seen
    out = original(allocator, seq_lens, seq_lens_cpu, last_loc, **more)
    crossing = [row for row, length in enumerate(seq_lens_cpu.tolist()) if length % allocator.page_size == 1]
    others = [row for row in range(len(last_loc)) if row not in crossing]
    if out is not None and crossing and others:
        _seen += 1
        if _seen % {EVERY_CROSSING_STEPS} == 0:
            # The row gets a page that another one is writing to. Its own is never given back, that one twice.
            page = int(last_loc[others[len(others) // 2]]) // allocator.page_size
            out[crossing[0]] = page * allocator.page_size
    return out
"""


def plant(folder: Path) -> Path:
    """Write the plugin. An engine that is started with this folder in PYTHONPATH has the fault."""
    information = folder / "planted_fault-1.dist-info"
    information.mkdir(parents=True)
    (folder / "planted_fault.py").write_text(_PLUGIN)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: planted-fault\nVersion: 1\n")
    (information / "entry_points.txt").write_text("[sglang.srt.plugins]\nplanted_fault = planted_fault:register\n")
    return folder
