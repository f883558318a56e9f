"""Exact page arithmetic of SGLang's paged KV pool (pure).

A request with a prompt of `L` tokens and `max_new_tokens = N`:

- prefill takes `ceil(L / page_size)` pages and yields the first new token, which has no KV entry yet;
- in its k-th decode step (k from 1) it has `L + k` tokens, the one being decoded included; it takes part in decode
  steps `1 .. N - 1`, because the last token is never fed back;
- it *crosses*, needs a new page, in each step with `(L + k) % page_size == 1`;
- when it ends it gives back `ceil((L + N - 1) / page_size)` pages.

Source: `alloc_extend` and `alloc_decode` of SGLang's `PagedTokenToKVPoolAllocator`, and
`ScheduleBatch.prepare_for_decode`.
"""

from __future__ import annotations

from dataclasses import dataclass

from .shape import Shape


@dataclass(frozen=True, slots=True)
class Pool:
    """A KV pool: `pages` pages of `page_size` tokens each."""

    page_size: int
    pages: int

    @property
    def tokens(self) -> int:
        return self.page_size * self.pages


def pages_for(tokens: int, page_size: int) -> int:
    """Pages that hold `tokens` tokens."""
    return -(-tokens // page_size)


def crossings(shape: Shape, page_size: int) -> range:
    """The request's own decode steps, from 1, in which it needs a new page."""
    to_boundary = -shape.prompt_tokens % page_size
    return range(to_boundary + 1, shape.max_new_tokens, page_size)


def crossing_once(pages: int, at_step: int, page_size: int) -> Shape:
    """The request that holds `pages` pages after prefill, crosses in its decode step `at_step`, and ends with it.

    Args:
        pages: pages after prefill, at least 1. It ends with one more.
        at_step: from 1 to `page_size`.
    """
    if pages < 1 or not 1 <= at_step <= page_size:
        raise ValueError(f"pages={pages} must be at least 1, at_step={at_step} from 1 to page_size={page_size}")
    return Shape(prompt_tokens=pages * page_size + 1 - at_step, max_new_tokens=at_step + 1)
