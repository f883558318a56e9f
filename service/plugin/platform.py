"""Rehearsal platform: SGLang's NPU page allocator on a plain CPU, through SGLang's own platform plugin point.

One thing is stood in for: `alloc_extend` of the NPU allocator launches a Triton-Ascend kernel of the package
`sgl_kernel_npu`, which only exists on Ascend. SGLang's `alloc_extend_naive` computes the same indices and takes its
place. Nothing else of the allocator is replaced; `alloc_decode` is SGLang's own code, line by line.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from typing import Any

from sglang.srt.platforms.cpu import CpuDeviceMixin
from sglang.srt.platforms.device_mixin import PlatformEnum
from sglang.srt.platforms.interface import SRTPlatform

_KERNEL_MODULE = "sgl_kernel_npu.mem_cache.allocator"


class RehearsalPlatform(CpuDeviceMixin, SRTPlatform):
    """A CPU that hands pages out with the NPU allocator."""

    _enum = PlatformEnum.OOT
    device_name = "cpu"
    device_type = "cpu"

    def get_default_attention_backend(self) -> str:
        return "torch_native"

    def get_dispatch_key_name(self) -> str:
        return "native"

    def get_paged_allocator_cls(self) -> type:
        stand_in_for_extend_kernel()
        # Resolved at each call, so that an allocator variant that took the class's place is what is returned.
        from sglang.srt.hardware_backend.npu import allocator_npu

        return allocator_npu.NPUPagedTokenToKVPoolAllocator

    def get_mha_kv_pool_cls(self) -> type:
        """SGLang up to 0.5.18 asks the platform for its KV pool; later releases fall back to this same class."""
        from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool

        return MHATokenToKVPool

    def is_pin_memory_available(self, device: Any = None) -> bool:
        return False


class _NaiveExtendKernel:
    """Launches like the Triton kernel, `kernel[grid](...)`, and runs `alloc_extend_naive`."""

    def __getitem__(self, grid: Any) -> _NaiveExtendKernel:
        return self

    def __call__(
        self,
        prefix_lens: Any,
        seq_lens: Any,
        last_loc: Any,
        free_pages: Any,
        out_indices: Any,
        _batch_size_power_of_2: int,
        page_size: int,
        _max_extend_tokens_power_of_2: int,
    ) -> None:
        from sglang.srt.mem_cache.allocator import alloc_extend_naive

        alloc_extend_naive(prefix_lens, seq_lens, last_loc, free_pages, out_indices, page_size, out_indices.device)


def stand_in_for_extend_kernel() -> None:
    """Put the stand-in kernel where the allocator imports it from, unless the real package is there."""
    if _KERNEL_MODULE in sys.modules or importlib.util.find_spec("sgl_kernel_npu") is not None:
        return
    package_names = ("sgl_kernel_npu", "sgl_kernel_npu.mem_cache")
    for name in package_names:
        package = types.ModuleType(name)
        package.__path__ = []
        sys.modules[name] = package
    kernels = types.ModuleType(_KERNEL_MODULE)
    kernels.alloc_extend_kernel = _NaiveExtendKernel()  # type: ignore[attr-defined]
    sys.modules[_KERNEL_MODULE] = kernels
