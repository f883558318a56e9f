"""A node of SGLang's radix tree: full pages that are evicted together."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field


@dataclass(eq=False)
class Node:
    """Full pages that are evicted together.

    Attributes:
        contents: what each page holds, one value a page.
        accessed: a clock's reading when it was last inserted or matched.
        children: by the contents of their first page.
        locks: how many running requests hold its pages.
    """

    contents: list[Hashable] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)
    parent: Node | None = None
    children: dict[Hashable, Node] = field(default_factory=dict)
    accessed: float = 0.0
    locks: int = 0

    def path(self) -> list[Node]:
        """The nodes from the root's child to this one."""
        nodes: list[Node] = []
        node: Node | None = self
        while node is not None and node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    def below(self) -> Iterator[Node]:
        """All nodes below this one."""
        for child in self.children.values():
            yield child
            yield from child.below()
