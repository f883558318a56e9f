"""SGLang's radix cache, for prompts of which no two begin alike (pure).

It follows `mem_cache/unified_radix_cache.py` and `unified_cache/unified_tree_core.py` of SGLang 0.5.23, and
`mem_cache/radix_cache.py` of 0.5.18, under the default policy, least recently used. The tree then is one chain of nodes
a request: the full pages of its prompt, and when it has ended those of its answer. What ends in the middle of a page is
never kept. A running request locks its nodes. What no request locks can be evicted, whole nodes at a time, from the end
of a chain on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .admission import Request
from .page_pool import PagePool


@dataclass(eq=False)
class Node:
    """Full pages that were put into the tree together.

    Attributes:
        accessed: a clock's reading when it was last inserted or matched.
        parent: the node before it in its chain.
        is_last: whether no node follows in its chain.
    """

    pages: Sequence[int]
    accessed: int
    parent: Node | None = None
    is_last: bool = True
    is_locked: bool = True


@dataclass(eq=False)
class PrefixCache:
    """The tree, and the nodes in it that each request has locked.

    Attributes:
        splits_at_prompt: whether a node never holds pages of a prompt and of its answer: so from 0.5.23 on.
        evictable_pages: pages that could be evicted.
        evicted: pages that were evicted so far.
    """

    pool: PagePool
    splits_at_prompt: bool = True
    evictable_pages: int = 0
    evicted: int = 0
    nodes: list[Node] = field(default_factory=list)
    _chains: dict[Request, list[Node]] = field(default_factory=dict)
    _clock: int = 0

    def pages(self, request: Request) -> list[int]:
        """Pages of a request that are in the tree."""
        return [page for node in self._chains.get(request, ()) for page in node.pages]

    def pages_of(self, request: Request) -> int:
        """How many those are."""
        return sum(len(node.pages) for node in self._chains.get(request, ()))

    def match(self, request: Request) -> int:
        """Pages of a retracted request that are still there: `match_prefix`, which counts as an access."""
        chain = self._chains.get(request, [])
        self._chains[request] = present = [node for node in chain if node in self.nodes]
        self._touch(present)
        return self.pages_of(request)

    def lock(self, request: Request) -> None:
        """inc_lock_ref: what a request has of the tree is not evicted."""
        for node in self._chains.get(request, ()):
            if not node.is_locked:
                node.is_locked = True
                self.evictable_pages -= len(node.pages)

    def unlock(self, request: Request) -> None:
        """dec_lock_ref: of a request that was retracted, which is remembered, or has ended."""
        for node in self._chains.get(request, ()):
            if node.is_locked:
                node.is_locked = False
                self.evictable_pages += len(node.pages)

    def keep(self, request: Request) -> None:
        """checkpoint, cache_unfinished_req: put the full pages that are not there yet into the tree, and lock them."""
        page_size = self.pool.size.page_size
        chain = self._chains.setdefault(request, [])
        self._touch(chain)
        # In 0.5.18 a row that has ended may have decoded once more; that is not kept.
        full = min(request.tokens, request.shape.final_tokens) // page_size
        prompt = request.shape.prompt_tokens // page_size
        for end in (prompt, full) if self.splits_at_prompt and prompt < full else (full,):
            begin = self.pages_of(request)
            if begin < end:
                self._append(chain, request.pages[begin:end])
        if self.splits_at_prompt and 0 < prompt < full:
            # The prompt is inserted once more, to split the node at its end where that is not done yet.
            self._touch(chain[:1])

    def keep_ended(self, request: Request) -> Sequence[int]:
        """cache_finished_req: keep what has ended, unlocked; returns the pages that are not kept."""
        self.keep(request)
        rest = request.pages[self.pages_of(request) :]
        self.unlock(request)
        del self._chains[request]
        return rest

    def make_room(self, tokens: int) -> None:
        """evict_to_free_tokens: evict until as many tokens fit into the free pages, or nothing is left to evict."""
        page_size = self.pool.size.page_size
        while self.pool.free_pages * page_size < tokens:
            node = min((n for n in self.nodes if n.is_last and not n.is_locked), key=_accessed, default=None)
            if node is None:
                return
            self.nodes.remove(node)
            if node.parent is not None:
                node.parent.is_last = True
            self.evictable_pages -= len(node.pages)
            self.evicted += len(node.pages)
            self.pool.release(node.pages)

    def check(self) -> None:
        """The count of what can be evicted is right, and no node hangs on one that was evicted."""
        assert self.evictable_pages == sum(len(node.pages) for node in self.nodes if not node.is_locked)
        assert all(node.parent is None or node.parent in self.nodes for node in self.nodes)
        assert all(node.is_last == all(other.parent is not node for other in self.nodes) for node in self.nodes)

    def _append(self, chain: list[Node], pages: Sequence[int]) -> None:
        parent = chain[-1] if chain else None
        if parent is not None:
            parent.is_last = False
        node = Node(pages, self._tick(), parent)
        chain.append(node)
        self.nodes.append(node)

    def _touch(self, chain: Sequence[Node]) -> None:
        for node in chain:
            node.accessed = self._tick()

    def _tick(self) -> int:
        self._clock += 1
        return self._clock


def _accessed(node: Node) -> int:
    return node.accessed
