"""What a scenario and the coverage of the edge know of the server, from how it was launched (pure)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from loadgen.sglang.pages import Pool
from loadgen.sglang.releases import NEWEST
from loadgen.sglang.rules import Rules
from loadgen.sglang.server import ServerConfiguration

_OVERLAP_OFF = "--disable-overlap-schedule"
_PREFIX_CACHE_OFF = "--disable-radix-cache"
_MOST_RUNNING = "--max-running-requests"


def server_configuration(pool: Pool, arguments: Sequence[str], rules: Rules = NEWEST) -> ServerConfiguration:
    """The server that is launched with these SGLang arguments.

    Args:
        rules: those of its release.
    """
    return ServerConfiguration(
        pool,
        overlap=_OVERLAP_OFF not in arguments,
        prefix_cache=_PREFIX_CACHE_OFF not in arguments,
        max_running_requests=_most_running(arguments),
        rules=rules,
    )


def _most_running(arguments: Sequence[str]) -> int | None:
    """The last one counts, as SGLang reads them."""
    values = []
    for argument, following in itertools.zip_longest(arguments, arguments[1:], fillvalue=""):
        name, equals, value = argument.partition("=")
        if name == _MOST_RUNNING:
            values.append(value if equals else following)
    return int(values[-1]) if values and values[-1].isdecimal() else None
