"""SGLang's radix cache, page by page (pure).

It follows `mem_cache/unified_radix_cache.py` and `unified_cache/unified_tree_core.py` of SGLang 0.5.23, and
`mem_cache/radix_cache.py` of 0.5.18, under the default policy, least recently used. Full pages of a prompt are put into
the tree when its prefill is done, and those of the answer when the request has ended; what ends in the middle of a page
never is. A running request locks the nodes that hold its pages. What no request locks can be evicted, whole nodes at a
time, from the leaves on.

Two things of the source are left out, as no recording shows them yet. The Python tree, which SGLang uses on an NPU from
0.5.19 on, gives the lower part of a node that is split a new time; recordings on a CPU have it keep its old one. And up
to 0.5.21 the last token of a row that decoded once more may fill a page, which is then kept.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from ..releases import NEWEST
from ..rules import Rules
from .page_pool import PagePool
from .radix_tree import Node
from .request import Request

_PARENT_IS_OLDER_BY = 1e-5


@dataclass(eq=False)
class PrefixCache:
    """The tree, and where in it each request is.

    Attributes:
        rules: those of the server's release.
        evictable_pages: pages that could be evicted.
        evicted_pages: pages that were evicted so far.
    """

    pool: PagePool
    rules: Rules = NEWEST
    evictable_pages: int = 0
    evicted_pages: int = 0
    root: Node = field(default_factory=Node)
    _clock: int = 0

    @property
    def nodes(self) -> list[Node]:
        return list(self.root.below())

    def match(self, request: Request) -> list[int]:
        """match_prefix, and inc_lock_ref: pages that a request finds when it is to be prefilled; it locks them.

        Of the last token at least the logits have to be computed.
        """
        node, _ = self._walk(self._contents(request, (request.to_prefill - 1) // self.pool.size.page_size))
        self._clock += 1
        for depth, each in enumerate(reversed(node.path())):
            each.accessed = self._clock - depth * _PARENT_IS_OLDER_BY
        self._lock(node)
        request.node = node
        return [page for each in node.path() for page in each.pages]

    def unlock(self, request: Request) -> None:
        """dec_lock_ref: what it holds is no longer its own to hold."""
        if request.node is None:
            return
        for node in request.node.path():
            node.locks -= 1
            if not node.locks:
                self.evictable_pages += len(node.pages)
        request.node = None

    def own(self, request: Request) -> Sequence[int]:
        """Pages of a request that are not in the tree."""
        kept = sum(len(node.pages) for node in request.node.path()) if request.node is not None else 0
        return request.pages[kept:]

    def keep(self, request: Request, *, ended: bool = False) -> None:
        """checkpoint, cache_unfinished_req: put the full pages that are not there yet into the tree, and lock them.

        Where the tree holds the same already, the request goes on with those pages, and its own come back.
        """
        page_size = self.pool.size.page_size
        # What a row that has ended decoded once more is not kept.
        full = min(request.tokens, request.shape.final_tokens) // page_size
        protected = len(request.pages) - len(self.own(request))
        node = self._insert(request, full, protected)
        prompt = request.shape.prompt_tokens // page_size
        splits = self.rules.ended_splits_at_prompt if ended else self.rules.running_splits_at_prompt
        if splits and 0 < prompt < full:
            self._insert(request, prompt, prompt)
        # The walk may have split it.
        node, _ = self._walk(self._contents(request, full))
        self._lock(node)
        self.unlock(request)
        request.node = node
        request.pages = [page for each in node.path() for page in each.pages] + request.pages[full:]

    def keep_ended(self, request: Request) -> Sequence[int]:
        """cache_finished_req: keep what has ended, unlocked; returns the pages that are not kept."""
        self.keep(request, ended=True)
        rest = self.own(request)
        self.unlock(request)
        return rest

    def make_room(self, tokens: int) -> None:
        """evict_to_free_tokens: evict until as many tokens fit into the free pages, or nothing is left to evict."""
        page_size = self.pool.size.page_size
        while self.pool.free_pages * page_size < tokens:
            leaves = (node for node in self.root.below() if not node.children and not node.locks)
            node = min(leaves, key=_accessed, default=None)
            if node is None or node.parent is None:
                return
            del node.parent.children[node.contents[0]]
            self.evictable_pages -= len(node.pages)
            self.evicted_pages += len(node.pages)
            self.pool.release(node.pages)

    def check(self) -> None:
        """The count of what can be evicted is right, and no node hangs on one that is locked less."""
        nodes = self.nodes
        assert self.evictable_pages == sum(len(node.pages) for node in nodes if not node.locks)
        assert all(node.parent is self.root or (node.parent and node.parent.locks >= node.locks) for node in nodes)
        assert all(len(node.pages) == len(node.contents) > 0 for node in nodes)

    def _contents(self, request: Request, pages: int) -> list[Hashable]:
        return request.contents(pages, self.pool.size.page_size)

    def _insert(self, request: Request, pages: int, protected: int) -> Node:
        contents = self._contents(request, pages)
        node, matched = self._walk(contents)
        for each in node.path():
            each.accessed = self._tick()
        # What the request had of its own beside pages that the tree has already.
        self.pool.release(request.pages[protected:matched])
        if matched < pages:
            node = Node(contents[matched:], request.pages[matched:pages], node, accessed=self._tick())
            assert node.parent is not None
            node.parent.children[node.contents[0]] = node
            self.evictable_pages += len(node.pages)
        return node

    def _walk(self, contents: Sequence[Hashable]) -> tuple[Node, int]:
        """The node that ends where the tree last agrees with the contents, split there if need be; and its pages."""
        node, matched = self.root, 0
        while matched < len(contents) and contents[matched] in node.children:
            node = node.children[contents[matched]]
            rest = contents[matched : matched + len(node.contents)]
            same = next((at for at, one in enumerate(rest) if one != node.contents[at]), len(rest))
            if same < len(node.contents):
                node = self._split(node, same)
            matched += same
        return node, matched

    def _split(self, node: Node, at: int) -> Node:
        assert node.parent is not None
        upper = Node(node.contents[:at], node.pages[:at], node.parent, accessed=node.accessed, locks=node.locks)
        node.parent.children[upper.contents[0]] = upper
        node.contents, node.pages, node.parent = node.contents[at:], node.pages[at:], upper
        upper.children[node.contents[0]] = node
        return upper

    def _lock(self, node: Node) -> None:
        for each in node.path():
            if not each.locks:
                self.evictable_pages -= len(each.pages)
            each.locks += 1

    def _tick(self) -> int:
        self._clock += 1
        return self._clock


def _accessed(node: Node) -> float:
    return node.accessed
