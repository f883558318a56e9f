"""The rules of admission: which waiting request is prefilled next, and what it costs the pass (pure).

Read in `managers/schedule_policy.py` of SGLang 0.5.18 to 0.5.23: `PrefillAdder.add_one_req` and
`PrefillBudget.reserve`. The server is launched so that nothing is reserved for tokens to come (`launch_arguments.py`).
Then all of admission is two formulas. A request of `t` tokens to prefill, when `n` tokens are left to a pass of
admissions,

- is admitted when `t` and one page more are less than `n`;
- is charged its pages and one page more, for the rest of this pass.

Example: 10 pages of 128 are free. A prompt of 900 tokens is admitted, as 900 + 128 < 1280. It takes 8 pages and is
charged 9, so one page is left to the pass: too little for anybody, as 1 + 128 is not less than 128. After the pass two
pages are free.
"""

from __future__ import annotations

from .pages import pages_for
from .releases import NEWEST
from .rules import Rules


def is_admitted(tokens: int, left: int, page_size: int, rules: Rules = NEWEST) -> bool:
    """Whether the next request of the queue is admitted.

    Args:
        tokens: tokens to prefill, without those that the prefix cache has.
        left: tokens that are free, or can be evicted, and are not charged to others of this pass.
    """
    return tokens + rules.pages_beside_prompt * page_size < left


def charge(tokens: int, page_size: int, rules: Rules = NEWEST) -> int:
    """Tokens that are charged to a request which is admitted with so many tokens to prefill."""
    return (pages_for(tokens, page_size) + rules.pages_charged_beside) * page_size


def free_after(*, last_page_full: bool, rules: Rules = NEWEST) -> int:
    """The fewest free pages that a pass of admissions leaves.

    Args:
        last_page_full: whether the prompt that was admitted last fills its last page to the brim.
    """
    return rules.pages_beside_prompt + last_page_full


def most_admitted(left_free: int, rules: Rules = NEWEST) -> int:
    """Requests that one pass can admit when it is to leave so many pages free.

    Each but the last is charged pages that it does not take, and these stay free; so do those beside the last.
    """
    return (left_free - rules.pages_beside_prompt) // max(1, rules.pages_charged_beside) + 1


def most_pages_each(pages: int, requests: int, rules: Rules = NEWEST) -> int:
    """Pages that each of so many equal requests can hold when one pass is to admit them all, and stay open after that.

    Args:
        pages: free pages.
    """
    kept = max(1, 1 + rules.pages_beside_prompt - rules.pages_charged_beside)
    return (pages - kept) // requests - rules.pages_charged_beside
