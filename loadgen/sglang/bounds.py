"""What the rules allow, whatever the load: how many rows run, which pages are free, what a row holds (pure).

Each function follows from a rule, which it names. The coverage of the edge asks them which decode steps can exist.
"""

from __future__ import annotations

from .admission import free_after
from .limits import most_pages_of_a_request
from .server import ServerConfiguration


def most_running(server: ServerConfiguration) -> int:
    """The most rows that hold pages at a time: `resolve_max_num_reqs` of mem_cache/kv_cache_configurator.py.

    Without a prefix cache each row has a page of its own, and the last admission has left some free
    (`Rules.pages_beside_prompt`).
    """
    rows = min(server.max_running_requests or server.rules.most_running, server.pool.tokens // 2)
    return rows if server.prefix_cache else min(rows, server.pool.pages - server.rules.pages_beside_prompt)


def rows_can_sit_out(server: ServerConfiguration) -> bool:
    """Whether a row can hold pages without being in the batch: one whose last token is under way.

    `Rules.rows_about_to_end_sit_out`. After a retraction there is none, as such a row puts off a step that lacks pages.
    """
    return server.overlap and server.rules.rows_about_to_end_sit_out


def free_after_prefill(server: ServerConfiguration, *, last_row_needs_page: bool) -> int:
    """The fewest free pages in the step after a prefill, when what was admitted last is the last row.

    A row needs a page in its first step when its prompt fills its pages to the brim.
    """
    return free_after(last_page_full=last_row_needs_page, rules=server.rules)


def free_beside_cache(rows: int) -> int:
    """The fewest free pages in a step while the prefix cache has pages to give: one for each row.

    `decoding.room_for_step`.
    """
    return rows


def most_pages_of_a_row(server: ServerConfiguration) -> int:
    """The most pages that a row holds at its end, which it may decode beyond (`Rules.rows_about_to_end_sit_out`)."""
    once_more = server.overlap and not server.rules.rows_about_to_end_sit_out
    return most_pages_of_a_request(server.pool, server.rules, once_more=once_more)


def fewest_pages_of_rows(
    server: ServerConfiguration, *, needing: int, not_needing: int, have_decoded: bool, last_is_new: bool
) -> int:
    """The fewest pages that the rows of a batch hold.

    Only prompts go into the prefix cache while a request runs (`cache_unfinished_req` of mem_cache/radix_cache.py), and
    only full pages. So a row that has decoded has its last page for itself, and so has one that does not need a page.
    Other rows may share all their pages.

    Args:
        needing: rows that need a page in this step.
        have_decoded: the step before was a decode step of the same rows.
        last_is_new: the last row was prefilled, and the result of that is not seen yet: its pages are not in the cache.
    """
    if have_decoded:
        # With two tokens a page, a row has filled one. When it does not need another now, it is in its second.
        return needing + not_needing * (2 if server.pool.page_size == 2 else 1)
    if not server.prefix_cache:
        return needing + not_needing
    return not_needing + min(needing, 1 + last_is_new)
