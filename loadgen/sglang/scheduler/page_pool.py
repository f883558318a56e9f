"""SGLang's paged allocator as a list of page ids, which notices a page that is handed out or given back twice.

It follows `mem_cache/allocator/paged.py` and `base.py` of SGLang 0.5.23. Page 0 is SGLang's own, for padding.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import LoadError
from ..pages import Pool, pages_for


class OutOfPages(LoadError):
    """Pages were taken that are not there. SGLang's scheduler would raise, and the server go down."""


class PagePool:
    """The free list: pages are taken from its front, and come back to its front."""

    def __init__(self, size: Pool) -> None:
        self.size = size
        self._free = list(range(1, size.pages + 1))
        self._taken: set[int] = set()

    @property
    def free_pages(self) -> int:
        return len(self._free)

    def extend(self, prefix_tokens: int, tokens: int) -> list[int]:
        """alloc_extend, for one row that has `prefix_tokens` tokens and is to have `tokens`."""
        page_size = self.size.page_size
        return self.take(pages_for(tokens, page_size) - pages_for(prefix_tokens, page_size))

    def take(self, pages: int) -> list[int]:
        """alloc_decode, for as many rows that need a page each.

        Raises:
            OutOfPages: there are not as many.
        """
        if pages > len(self._free):
            raise OutOfPages(f"{pages} pages are needed, {len(self._free)} are free")
        taken, self._free = self._free[:pages], self._free[pages:]
        assert self._taken.isdisjoint(taken), "a page was handed out twice"
        self._taken.update(taken)
        return taken

    def release(self, pages: Iterable[int]) -> None:
        """free, or a free group."""
        pages = list(pages)
        assert self._taken.issuperset(pages) and len(set(pages)) == len(pages), "a page was given back twice"
        self._taken.difference_update(pages)
        self._free = pages + self._free

    def check(self, held: Iterable[int], foreign_pages: int = 0) -> None:
        """Every page is free or held, none twice.

        Args:
            held: the pages of all requests.
            foreign_pages: how many pages are held by nobody that is known.
        """
        held = list(held)
        assert len(held) == len(set(held)), "a page is held by two rows"
        assert self._taken.issuperset(held), "a page is held that was not handed out"
        assert len(self._taken) == len(held) + foreign_pages, "a page is lost"
        assert sorted([*self._free, *self._taken]) == list(range(1, self.size.pages + 1))
