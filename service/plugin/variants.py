"""Allocator variants, and the test that tells what an installed allocator does at the edge.

What SGLang's `alloc_decode` computes, for rows with `seq_lens` tokens (the token being decoded included)::

    need  = seq_lens % page_size == 1          a row whose new token opens a page
    start = cumsum(need) - need                each row's index into the free list
    out   = page start of free[start]          for a row that needs a page
            last_loc + 1                       for any other row

Trailing rows, after the last needing row, have `start == need.sum()`. That index is unused (its value is multiplied by
0) but it is read, and when the free list has exactly `need.sum()` pages it is one past the end. Upstream's fix, in
releases from 0.5.19 on, clamps `start` to the last page needed (pull request 35727).
"""

from __future__ import annotations

from typing import Any

import torch

from .settings import Allocator

PARAMETERS = ("seq_lens", "seq_lens_cpu", "last_loc")


class UnexpectedAllocator(RuntimeError):
    """The release's allocator does not behave as the probe and the variants rely on."""


def load_installed_class() -> type:
    """SGLang's NPU page allocator.

    Raises:
        UnexpectedAllocator: the release has no such class.
    """
    try:
        from sglang.srt.hardware_backend.npu.allocator_npu import NPUPagedTokenToKVPoolAllocator
    except ImportError as error:
        raise UnexpectedAllocator(f"this SGLang has no NPUPagedTokenToKVPoolAllocator: {error}") from error
    return NPUPagedTokenToKVPoolAllocator


def bare_allocator(cls: type, *, page_size: int, free_pages: list[int]) -> Any:
    """An instance of an allocator class on the CPU, without a KV cache behind it, with the given free list."""
    allocator = cls(
        size=page_size * max(free_pages, default=1),
        page_size=page_size,
        dtype=torch.float16,
        device="cpu",
        kvcache=None,
        need_sort=False,
    )
    allocator.free_pages = torch.tensor(free_pages, dtype=torch.int64)
    return allocator


def decode_once(allocator: Any, seq_lens: list[int], last_loc: list[int]) -> list[int] | None:
    """Call `alloc_decode` for rows of the given lengths (the token being decoded included) and last KV locations."""
    lengths = torch.tensor(seq_lens, dtype=torch.int64)
    out = allocator.alloc_decode(lengths, lengths, torch.tensor(last_loc, dtype=torch.int64))
    return None if out is None else out.tolist()


def has_clamp(cls: type) -> bool:
    """Whether an allocator class survives a tight step with a trailing row.

    The class is judged by what it does, not by how its source looks.

    Raises:
        UnexpectedAllocator: it cannot be built or called as expected, or hands out other locations than expected.
    """
    try:
        with_slack = decode_once(bare_allocator(cls, page_size=4, free_pages=[7, 8, 9]), [5, 6, 9, 8], [3, 21, 27, 14])
        without_need = decode_once(bare_allocator(cls, page_size=4, free_pages=[7]), [6, 8], [20, 30])
        too_short = decode_once(bare_allocator(cls, page_size=4, free_pages=[]), [5], [3])
    except Exception as error:
        raise UnexpectedAllocator(f"alloc_decode failed on a step with pages to spare: {error!r}") from error
    found = (with_slack, without_need, too_short)
    expected = ([28, 22, 32, 15], [21, 31], None)
    if found != expected:
        raise UnexpectedAllocator(f"alloc_decode handed out {found}, expected {expected}")
    try:
        tight = decode_once(bare_allocator(cls, page_size=4, free_pages=[7]), [5, 6], [3, 21])
    except IndexError:
        return False
    except Exception as error:
        raise UnexpectedAllocator(f"alloc_decode failed on a tight step: {error!r}") from error
    if tight != [28, 22]:
        raise UnexpectedAllocator(f"alloc_decode handed out {tight} on a tight step, expected [28, 22]")
    return True


def variant_of(cls: type, allocator: Allocator) -> type:
    """The class to run for a variant: `cls` itself when it already is what the variant promises, else a subclass.

    Raises:
        UnexpectedAllocator: see `has_clamp`.
    """
    clamped = has_clamp(cls)
    if allocator is Allocator.INSTALLED or clamped == (allocator is Allocator.PATCHED):
        return cls
    variant = _subclass(cls, clamp=allocator is Allocator.PATCHED)
    if has_clamp(variant) is clamped:
        raise UnexpectedAllocator(f"the {allocator.value} variant behaves like the installed allocator")
    return variant


def _subclass(cls: type, *, clamp: bool) -> type:
    def alloc_decode(
        self: Any, seq_lens: torch.Tensor, seq_lens_cpu: torch.Tensor, last_loc: torch.Tensor
    ) -> torch.Tensor | None:
        """Pages for one more token a row; shapes (rows,), None when the pool is short."""
        pages_needed = int((seq_lens_cpu % self.page_size == 1).sum())
        if pages_needed > len(self.free_pages):
            self.merge_and_sort_free()
        if pages_needed > len(self.free_pages):
            return None
        if pages_needed == 0:
            return (last_loc + 1).int()
        need = (seq_lens % self.page_size == 1).int()
        start = torch.cumsum(need, 0) - need
        if clamp:
            start = start.clamp(max=pages_needed - 1)
        first_of_page = self.free_pages[start] * self.page_size
        self.free_pages = self.free_pages[pages_needed:]
        return ((last_loc + 1) * (1 - need) + first_of_page * need).int()

    name = f"{'Patched' if clamp else 'Unpatched'}{cls.__name__}"
    return type(name, (cls,), {"alloc_decode": alloc_decode, "__module__": __name__})
