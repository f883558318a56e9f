"""A request on its way through the model of the scheduler."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from ..decoding import needs_page
from ..shape import Segment, Shape
from .radix_tree import Node


@dataclass(eq=False)
class Request:
    """A request on its way through the scheduler.

    Attributes:
        output: new tokens whose results the scheduler has seen.
        tokens: tokens with a KV entry.
        pages: the pages that hold them, in order.
        first_step: the scheduler's decode step that was its first; 0 before it.
        decode_steps: decode steps that it took part in.
        crossings: those of its own decode steps, from 1, in which it needed a page.
        number: which of all requests it is; its own tokens are nobody else's.
        shared: what its prompt begins with, as others' prompts may.
        node: the node of the prefix cache that holds the last of its pages that are in the tree.
    """

    shape: Shape
    output: int = 0
    tokens: int = 0
    pages: list[int] = field(default_factory=list)
    finished: bool = False
    aborted: bool = False
    retracted: bool = False
    first_step: int = 0
    decode_steps: int = 0
    crossings: list[int] = field(default_factory=list)
    number: int = 0
    shared: Segment | None = None
    node: Node | None = None

    def contents(self, pages: int, page_size: int) -> list[Hashable]:
        """What its first pages hold, one value a page, for the prefix cache: equal values are equal tokens."""
        own: Hashable = ("request", self.number)
        shared = self.shared.tokens // page_size if self.shared is not None else 0
        begins: Hashable = ("segment", self.shared.key) if self.shared is not None else own
        return [(begins if page < shared else own, page) for page in range(pages)]

    @property
    def to_prefill(self) -> int:
        """Tokens of the prompt and of what was answered before a retraction."""
        return self.shape.prompt_tokens + self.output

    @property
    def ends_with_next_token(self) -> bool:
        """schedule_batch.py, Req.next_output_finishes_by_length."""
        return self.output + 1 >= self.shape.max_new_tokens

    def needs_page(self, page_size: int) -> bool:
        """Whether its next decode step needs a new page."""
        return needs_page(self.tokens, page_size)
