"""The rules of a decode step: who needs a page, what is evicted for it, who is retracted (pure).

Read in SGLang 0.5.18 to 0.5.23. The order in which steps, ends and admissions follow each other is in `rules.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from .rules import Rules


def needs_page(tokens: int, page_size: int) -> bool:
    """Whether a row with so many tokens needs a new page for the next one.

    `managers/schedule_batch.py`, `new_tokens_required_next_decode`.
    """
    return tokens % page_size == 0


def room_for_step(rows: int, page_size: int) -> int:
    """Tokens that must be free before a decode step; pages of the prefix cache are evicted for them.

    As if each row needed a page, whether it does or not: `mem_cache/allocation.py`, `alloc_paged_token_slots_decode`.
    """
    return rows * page_size


def room_for_prefill(tokens: Iterable[int], page_size: int) -> int:
    """Tokens that must be free before a prefill batch of rows with so many tokens each.

    As if each row needed a page more: `mem_cache/allocation.py`, `alloc_paged_token_slots_extend`.
    """
    return sum(each + page_size for each in tokens)


def room_after_retraction(rows: int, rules: Rules) -> int:
    """Tokens that must be free after a row was retracted, with so many rows left: `release_req`."""
    return rows * rules.retraction_evicts_for_steps


def retraction_rank(new_tokens: int, prompt_tokens: int) -> tuple[int, int]:
    """Rows are retracted from the lowest rank on: fewest new tokens first, of those the longest prompt.

    At least one row is retracted and one is kept. The others stay in the batch in the order of their rank, highest
    first. `managers/schedule_batch.py`, `retract_decode`.
    """
    return new_tokens, -prompt_tokens
