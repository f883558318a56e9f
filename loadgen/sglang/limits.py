"""What SGLang takes in, by the length of the prompt (pure).

Read below `sglang/srt/` in releases 0.5.18 to 0.5.23, and seen in a run of 0.5.23: on 32 pages of 128, launched by
`launch.over_committing`, each of these held to the token, for prompts of one token up to one more than the pool. On an
idle server a prompt of

- at most `longest_answered_prompt` tokens gets an answer of up to `longest_answer` tokens; a longer one is cut without
  a word (`Scheduler.init_req_max_new_tokens`, `max_new_tokens_for_memory`);
- more, up to `longest_admitted_prompt` tokens, is prefilled, and answered with HTTP 200, finish reason "length" and no
  token at all, whatever was asked for;
- more, up to `longest_accepted_prompt` tokens, is taken in and never admitted: prompt and one page more are not less
  than the whole pool (`admission.is_admitted`). It stands at the head of the queue, and since admission is first
  come, first served, nobody behind it is served either, until its client hangs up. SGLang's pull request 29249, which
  is open, would have it refused;
- more is refused with HTTP 400 (`validate_input_length`).
"""

from __future__ import annotations

from ..errors import LoadError
from .pages import Pool, pages_for
from .releases import NEWEST
from .rules import Rules
from .shape import Shape


class NotServable(LoadError):
    """SGLang would refuse the request, or answer it with fewer tokens than were asked for."""


def longest_accepted_prompt(pool: Pool, rules: Rules = NEWEST) -> int:
    return pool.tokens - rules.tokens_beside_prompt


def longest_admitted_prompt(pool: Pool, rules: Rules = NEWEST) -> int:
    """The longest prompt that is ever prefilled: all but one page, and one token less."""
    admitted = (pool.pages - rules.pages_beside_prompt) * pool.page_size - 1
    return min(admitted, longest_accepted_prompt(pool, rules))


def longest_answered_prompt(pool: Pool, rules: Rules = NEWEST) -> int:
    """The longest prompt that can get an answer."""
    return (pool.pages - 1 - rules.pages_beside_answer) * pool.page_size


def longest_answer(prompt_tokens: int, pool: Pool, rules: Rules = NEWEST) -> int:
    """The most new tokens that a prompt can get: what its pages, one page and one token leave; 0 or less for none."""
    paged_prompt = pages_for(prompt_tokens, pool.page_size) * pool.page_size
    left = pool.tokens - paged_prompt - rules.pages_beside_answer * pool.page_size
    return min(left, pool.tokens - 1 - prompt_tokens) - 1


def most_pages_of_a_request(pool: Pool, rules: Rules = NEWEST, *, once_more: bool = False) -> int:
    """Pages that the longest request holds at its end: one whose prompt fills its pages, with the longest answer.

    Args:
        once_more: it decodes once more than its answer needs.
    """
    prompt = pool.page_size
    tokens = prompt + longest_answer(prompt, pool, rules) - 1
    return pages_for(tokens + once_more, pool.page_size)


def is_servable(shape: Shape, pool: Pool, rules: Rules = NEWEST) -> bool:
    """Whether a request is taken in, and gets as many tokens as were asked for."""
    if shape.prompt_tokens > longest_accepted_prompt(pool, rules):
        return False
    return shape.max_new_tokens <= longest_answer(shape.prompt_tokens, pool, rules)


def check_servable(shape: Shape, pool: Pool, rules: Rules = NEWEST) -> None:
    """
    Raises:
        NotServable: the prompt is too long, or the answer is.
    """
    if not is_servable(shape, pool, rules):
        raise NotServable(f"{shape} on {pool}")
