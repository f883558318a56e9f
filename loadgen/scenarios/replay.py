"""`replay`: the requests of a trace, at the times at which they came, with the prefixes that they shared.

It leans on the radix cache (`mem_cache/radix_cache.py` of 0.5.23): when a request has ended, its full pages stay until
they are evicted, and a prompt that begins with the same tokens takes them over. So what fills the pool is what was
answered a while ago, as in a real service, and a decode step that is short of pages evicts. Nothing is kept back in
admission for tokens to come, so that a trace presses on the pool as hard as it can.

Lengths are scaled to the pool by as many 512ths as `length_scale` comes nearest to: a block of 512 tokens, which is
what a trace shares, then has a whole number of tokens, the same wherever it stands. By default lengths are scaled down
just so far that every request fits, and not at all when they do.

A trace with times is replayed as an open loop, whatever the server does; one without, as a closed loop of so many
requests. A repetition begins when all of the one before are answered. It shares nothing with that one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from ..requests.planned_request import PlannedRequest
from ..requests.wave import Wave
from ..sglang.launch_arguments import over_committing
from ..sglang.limits import is_servable
from ..sglang.pages import Pool, pages_for
from ..sglang.server import EngineNeeds, ServerConfiguration
from ..sglang.shape import Segment, Shape
from ..traces.trace import BLOCK_TOKENS, Format, NotATrace, Trace, TracedRequest, read_trace
from .base import Misfit, NoOptions, Observation, Scenario, Streamed

SMALL_TRACE = Path(__file__).parent.parent / "traces" / "conversations.jsonl"
"""A small trace made for this project: conversations that share what they begin with."""

_PREFILL_TOKENS = 8192
_FAULTS_TOLD = 10
_LARGEST_SCALE = 1000


class ReplayOptions(NoOptions):
    """Options of `replay`."""

    path: str | None = Field(
        default=None, min_length=1, description="File of the trace; absent: a small one of the project's own."
    )
    format: Format = Field(
        default=Format.AUTO, description="`mooncake`, `lengths`, or `auto`: the first line tells which."
    )
    time_scale: float = Field(
        default=1.0,
        ge=0,
        le=_LARGEST_SCALE,
        description="Factor on the times between requests: 0.1 is ten times as fast.",
    )
    length_scale: float | Literal["fit"] = Field(
        default="fit",
        description="Factor on lengths, above 0, at most 1000; `fit`: at most 1, and so that every request fits.",
    )
    repeat: int | None = Field(default=None, ge=1, description="Times it is replayed; absent: until the load ends.")
    open_requests: int = Field(
        default=64, ge=1, le=10_000, description="Requests kept open when the trace has no times."
    )
    prefix_cache: bool = Field(default=True, description="Launch with the radix cache; without it nothing is shared.")

    @field_validator("length_scale", mode="before")
    @classmethod
    def _is_a_factor(cls, value: Any) -> Any:
        """One fault for both of the types that it may have."""
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            if value == "fit" or 0 < float(value) <= _LARGEST_SCALE:
                return value
        raise ValueError(f"no factor; allowed: a number above 0, at most {_LARGEST_SCALE}, or fit")


class Replay(Scenario[ReplayOptions]):
    name = "replay"
    summary = "A trace of real requests, Mooncake's or one of lengths, scaled to the pool, with its shared prefixes"
    streamed = Streamed.ALL
    Options = ReplayOptions

    def __init__(self, server: ServerConfiguration, options: ReplayOptions, seed: int) -> None:
        super().__init__(server, options, seed)
        self._trace = read_trace(_path(options), options.format)
        self._block = block_tokens(self._trace, server.pool, options)
        self._repetition = -1
        self._began = 0.0
        self._rest: Iterator[TracedRequest] = iter(())
        self._next: TracedRequest | None = None

    @classmethod
    def faults(cls, pool: Pool, options: ReplayOptions) -> list[Misfit]:
        try:
            trace = read_trace(_path(options), options.format)
        except NotATrace as error:
            return [Misfit("load.options.path", options.path, fault) for fault in error.faults]
        block = block_tokens(trace, pool, options)
        too_long = [request for request in trace.requests if not is_servable(scaled_shape(request, block), pool)]
        if options.length_scale == "fit":
            # They are too long for the pool though a block has a single token.
            return [Misfit("engine.pool_pages", pool.pages, _too_long(too_long[0], block, pool))] if too_long else []
        return [
            Misfit("load.options.length_scale", options.length_scale, _too_long(request, block, pool))
            for request in too_long[:_FAULTS_TOLD]
        ]

    @classmethod
    def launch_faults(cls, pool: Pool, options: ReplayOptions) -> list[Misfit]:
        """None: waves that were written down hold all that the trace had for them."""
        return []

    @classmethod
    def engine_needs(cls, pool: Pool, options: ReplayOptions) -> EngineNeeds:
        return over_committing(pages_for(_PREFILL_TOKENS, pool.page_size), pool, prefix_cache=options.prefix_cache)

    @classmethod
    def longest_request(cls, pool: Pool, options: ReplayOptions) -> int:
        trace = read_trace(_path(options), options.format)
        block = block_tokens(trace, pool, options)
        shapes = (scaled_shape(request, block) for request in trace.requests)
        return max(shape.prompt_tokens + shape.max_new_tokens for shape in shapes)

    def next_wave(self, seen: Observation) -> Wave:
        if self._next is None:
            self._begin_again(seen)
        requests: list[PlannedRequest] = []
        while self._next is not None and self._is_due(self._next, seen, len(requests)):
            requests.append(self._planned(self._next))
            self._next = next(self._rest, None)
        return Wave(tuple(requests), streamed=True)

    def _begin_again(self, seen: Observation) -> None:
        over = self.options.repeat is not None and self._repetition + 1 >= self.options.repeat
        if over or seen.open_requests:
            return
        self._repetition += 1
        self._began = seen.elapsed
        self._rest = iter(self._trace.requests)
        self._next = next(self._rest)

    def _is_due(self, request: TracedRequest, seen: Observation, sent: int) -> bool:
        if request.seconds is None:
            return seen.open_requests + sent < self.options.open_requests
        return self._began + request.seconds * self.options.time_scale <= seen.elapsed

    def _planned(self, request: TracedRequest) -> PlannedRequest:
        shape = scaled_shape(request, self._block)
        first_key = self._repetition * self._trace.blocks
        return PlannedRequest(shape, shared_segments(request.blocks, shape.prompt_tokens, self._block, first_key))


def scaled_shape(request: TracedRequest, block: int) -> Shape:
    """The lengths of a request when a block of 512 tokens has `block`; at least one token each."""
    return Shape(_scaled(request.prompt_tokens, block), _scaled(request.answer_tokens, block))


def shared_segments(blocks: tuple[int, ...], prompt_tokens: int, block: int, first_key: int) -> tuple[Segment, ...]:
    """What a prompt is made of, block by block, until it is as long as it is to be."""
    cut = (min(block, prompt_tokens - place * block) for place in range(len(blocks)))
    return tuple(Segment(first_key + key, tokens) for key, tokens in zip(blocks, cut, strict=True))


def block_tokens(trace: Trace, pool: Pool, options: ReplayOptions) -> int:
    """Tokens of a block of 512, scaled: what was asked for, or the most with which every request fits; at least 1."""
    if options.length_scale != "fit":
        return max(1, round(options.length_scale * BLOCK_TOKENS))
    hardest = _hardest(trace)
    fitting, too_long = 0, BLOCK_TOKENS + 1
    while too_long - fitting > 1:
        middle = (fitting + too_long) // 2
        if all(is_servable(scaled_shape(request, middle), pool) for request in hardest):
            fitting = middle
        else:
            too_long = middle
    return max(1, fitting)


def _hardest(trace: Trace) -> list[TracedRequest]:
    """Requests to which no other one is equal or greater in both lengths: if these fit, all do."""
    hardest: list[TracedRequest] = []
    for request in sorted(trace.requests, key=lambda request: (-request.prompt_tokens, -request.answer_tokens)):
        if not hardest or request.answer_tokens > hardest[-1].answer_tokens:
            hardest.append(request)
    return hardest


def _scaled(tokens: int, block: int) -> int:
    return -(-tokens * block // BLOCK_TOKENS)


def _too_long(request: TracedRequest, block: int, pool: Pool) -> str:
    shape = scaled_shape(request, block)
    return (
        f"line {request.line}: a prompt of {shape.prompt_tokens} and an answer of {shape.max_new_tokens} tokens, as "
        f"scaled by {block}/{BLOCK_TOKENS}, do not fit into {pool.pages} pages of {pool.page_size}, with the page that "
        "SGLang keeps back; give fit or a smaller scale, or use a larger pool"
    )


def _path(options: ReplayOptions) -> Path:
    if options.path is None:
        return SMALL_TRACE
    try:
        return Path(options.path).expanduser()
    except RuntimeError:  # there is no such user
        return Path(options.path)
