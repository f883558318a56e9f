"""A SGLang server: how it has to be launched, and what its launch tells of how it will schedule (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from .pages import Pool
from .releases import NEWEST
from .rules import Rules

_NO_ENVIRONMENT: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class ServerConfiguration:
    """What a scenario knows of the server before it sends anything.

    Attributes:
        pool: the KV pool.
        overlap: whether the server runs with overlap scheduling, SGLang's default.
        prefix_cache: whether it keeps the pages of what has ended in a radix cache, SGLang's default.
        max_running_requests: the most rows of a batch; None when SGLang chooses.
        chunked_prefill_size: tokens of one prefill, below 1 for whole prompts; None when SGLang chooses.
        incremental_streams: whether a stream's events hold the new tokens only; SGLang's default repeats all.
        rules: how its release schedules.
    """

    pool: Pool
    overlap: bool = True
    prefix_cache: bool = False
    max_running_requests: int | None = None
    chunked_prefill_size: int | None = None
    incremental_streams: bool = False
    rules: Rules = NEWEST


@dataclass(frozen=True)
class EngineNeeds:
    """How the server has to be launched for a scenario to work.

    Attributes:
        arguments: SGLang server arguments.
        environment: environment variables.
    """

    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: _NO_ENVIRONMENT)
