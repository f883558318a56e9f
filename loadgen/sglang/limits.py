"""What SGLang takes in, by prompt length, and how it is launched so that nothing is kept back (pure).

Read in release 0.5.23, below `sglang/srt/`, and seen in a run of it: on 32 pages of 128, launched by `over_committing`,
each of these held to the token, for prompts of one token up to one more than the pool. On an idle server a prompt of

- at most `longest_answered_prompt` tokens gets an answer of up to `longest_answer` tokens; a longer one is cut without
  a word (`Scheduler.init_req_max_new_tokens`, `max_new_tokens_for_memory`);
- more, up to `longest_admitted_prompt` tokens, is prefilled, and answered with HTTP 200, finish reason "length" and no
  token at all, whatever was asked for;
- more, up to `longest_accepted_prompt` tokens, is taken in and never admitted: prompt and one page more are not less
  than the whole pool (`PrefillAdder.add_one_req`). It stands at the head of the queue, and since admission is first
  come, first served, nobody behind it is served either, until its client hangs up. SGLang's pull request 29249, which
  is open, would have it refused;
- more is refused with HTTP 400 (`validate_input_length`).
"""

from __future__ import annotations

from .pages import Pool, pages_for

_TOKENS_BESIDE_PROMPT = 7


def longest_accepted_prompt(pool: Pool) -> int:
    return pool.tokens - _TOKENS_BESIDE_PROMPT


def longest_admitted_prompt(pool: Pool) -> int:
    """The longest prompt that is ever prefilled: all but one page, and one token less."""
    return min((pool.pages - 1) * pool.page_size - 1, longest_accepted_prompt(pool))


def longest_answered_prompt(pool: Pool) -> int:
    """The longest prompt that can get an answer."""
    return (pool.pages - 2) * pool.page_size


def longest_answer(prompt_tokens: int, pool: Pool) -> int:
    """The most new tokens that a prompt can get: what its pages, one page and one token leave; 0 or less for none."""
    left = pool.tokens - pages_for(prompt_tokens, pool.page_size) * pool.page_size
    return min(left - pool.page_size, pool.tokens - 1 - prompt_tokens) - 1
