"""The one place where SGLang's final arguments become what the project knows of its server (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loadgen.sglang.pages import Pool
from loadgen.sglang.releases import NEWEST
from loadgen.sglang.rules import Rules
from loadgen.sglang.server import ServerConfiguration
from service.engine.process.arguments import options_given

OVERLAP_OFF = "--disable-overlap-schedule"
PREFIX_CACHE_OFF = "--disable-radix-cache"
MOST_RUNNING = "--max-running-requests"
PREFILL_SIZE = "--chunked-prefill-size"
INCREMENTAL_STREAMS = "--incremental-streaming-output"
# Its name up to SGLang 0.5.18; later releases refuse it.
INCREMENTAL_STREAMS_BEFORE = "--stream-output"
OPTIONS = (
    OVERLAP_OFF,
    PREFIX_CACHE_OFF,
    MOST_RUNNING,
    PREFILL_SIZE,
    INCREMENTAL_STREAMS,
    INCREMENTAL_STREAMS_BEFORE,
)
"""The options that decide what is known of a server. Pool and page size are the spec's own: see `arguments.OWNED`."""


def server_configuration(pool: Pool, arguments: Sequence[str], rules: Rules = NEWEST) -> ServerConfiguration:
    """The server that is launched with these SGLang arguments.

    Args:
        arguments: of which the last one of a kind counts, as SGLang reads them.
        rules: those of its release.
    """
    given = options_given(arguments, OPTIONS)
    return ServerConfiguration(
        pool,
        overlap=OVERLAP_OFF not in given,
        prefix_cache=PREFIX_CACHE_OFF not in given,
        max_running_requests=_number(given, MOST_RUNNING),
        chunked_prefill_size=_number(given, PREFILL_SIZE),
        incremental_streams=INCREMENTAL_STREAMS in given or INCREMENTAL_STREAMS_BEFORE in given,
        rules=rules,
    )


def refused_numbers(arguments: Sequence[str], page_size: int) -> list[str]:
    """Why a server with these SGLang arguments would not start, as far as what is read here tells: a message each."""
    given = options_given(arguments, OPTIONS)
    refused = []
    rows, size = _number(given, MOST_RUNNING), _number(given, PREFILL_SIZE)
    if MOST_RUNNING in given and (rows is None or rows < 1):
        refused.append(f"{MOST_RUNNING} {given[MOST_RUNNING]} is no number of batch rows; allowed: 1 or more")
    if PREFILL_SIZE in given and (size is None or 0 < size < page_size):
        refused.append(
            f"{PREFILL_SIZE} {given[PREFILL_SIZE]} is no size of a prefill; allowed: whole pages, so at least "
            f"{page_size} tokens, or -1 for prompts in one piece"
        )
    return refused


def _number(given: Mapping[str, str | None], name: str) -> int | None:
    """An option's value; None where it is not given, or is no number, with which SGLang does not start."""
    try:
        return int(given.get(name) or "")
    except ValueError:
        return None
