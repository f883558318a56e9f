"""How a server is launched so that admission reserves nothing, or as its defaults have it (pure)."""

from __future__ import annotations

from .pages import Pool, pages_for
from .server import EngineNeeds

_USUAL_PREFILL_TOKENS = 2048


def over_committing(prefill_pages: int, pool: Pool, *, prefix_cache: bool = False) -> EngineNeeds:
    """A launch in which admission keeps back nothing for tokens that are still to be decoded.

    Args:
        prefill_pages: most pages of one prefill. SGLang wants a prefill of whole pages.
        prefix_cache: whether the radix cache is on. Then the pages of what has ended count as free in admission, and
            are evicted when they are needed.
    """
    return EngineNeeds(
        arguments=(
            *(() if prefix_cache else ("--disable-radix-cache",)),
            "--schedule-conservativeness",
            "0",
            "--chunked-prefill-size",
            str(prefill_pages * pool.page_size),
        ),
        environment={"SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION": "0"},
    )


def usual_launch(pool: Pool) -> EngineNeeds:
    """A launch as SGLang's defaults have it, on any page size.

    Its own prefill sizes are powers of two, and it does not start when a prefill is not whole pages.
    """
    if _USUAL_PREFILL_TOKENS % pool.page_size == 0:
        return EngineNeeds()
    size = pages_for(_USUAL_PREFILL_TOKENS, pool.page_size) * pool.page_size
    return EngineNeeds(arguments=("--chunked-prefill-size", str(size)))
