"""The rules of SGLang's scheduler in which releases differ, or may come to differ, as one value (pure).

A rule is a field here. Its comment names the file and the function of SGLang that it was read in, below
`sglang/srt/`. What a release changes is one line in `releases.py`. The rules assume SGLang's usual scheduling: no
speculation, no mixed chunks, no interval between prefills, one scheduler.

The formulas made of these numbers stand in `admission.py` and `decoding.py`. Nobody else has a formula of his own:
planners, forecast, coverage, model and shrink call those.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """How one release schedules. The defaults are those of the newest release that was read.

    Attributes of admission:
        pages_beside_prompt: a request is admitted when its prompt and so many pages more are less than what is left.
            (managers/schedule_policy.py, PrefillAdder.add_one_req)
        pages_charged_beside: so many pages more than its own are charged to a request for the rest of the pass.
            (managers/schedule_policy.py, PrefillBudget.reserve)
        prefill_tokens: tokens of one prefill batch at most. (server_args.py, max_prefill_tokens)
        tokens_beside_prompt: a prompt is refused that leaves fewer tokens of the pool.
            (managers/tp_worker.py, max_req_input_len; managers/utils.py, validate_input_length)
        pages_beside_answer: an answer is cut so that so many pages are left beside prompt and answer.
            (managers/scheduler.py, init_req_max_new_tokens; mem_cache/allocator/base.py, max_new_tokens_for_memory)
        most_running: batch rows at most, where the launch does not say how many.
            (mem_cache/kv_cache_configurator.py, resolve_max_num_reqs)

    Attributes of the order of steps:
        ended_rows_leave_before_admission: rows that have ended leave the batch before each pass of admissions, and so
            open it. If not, they leave with the next decode step, and admission opens after that.
            (managers/scheduler.py, get_next_batch_to_run)
        rows_about_to_end_sit_out: with overlap scheduling a row whose last token is under way is left out of the
            batch. If the others lack pages, their step is put off until its pages have come back. If not, the row
            decodes once more. (managers/scheduler.py, _reqs_finishing_inflight and update_running_batch)
        empty_batch_opens_admission: admission that was closed opens when no row runs any more, and is not closed by a
            request that does not fit into an empty server. (managers/scheduler.py, _get_new_batch_prefill_raw)
        spent_chunk_ends_pass: a pass in which the next piece of a long prompt has taken the whole prefill looks at no
            waiting request. If not, it looks at the first, and closes admission when that does not fit.
            (managers/scheduler.py, _get_new_batch_prefill_raw)

    Attributes of retraction:
        retraction_evicts_for_steps: after each retracted row the prefix cache is evicted until each of the others has
            so many free tokens. (managers/schedule_batch.py, retract_decode; environ.py, SGLANG_RETRACT_DECODE_STEPS)

    Attributes of the prefix cache:
        ended_splits_at_prompt: of a request that has ended no node holds pages of its prompt and of its answer, so the
            answer's can be evicted alone. (mem_cache/unified_radix_cache.py, insert_req)
        running_splits_at_prompt: the same of one that runs, which has an answer in the tree after a retraction.
            (mem_cache/unified_radix_cache.py, checkpoint_into_tree)
    """

    pages_beside_prompt: int = 1
    pages_charged_beside: int = 1
    prefill_tokens: int = 16384
    tokens_beside_prompt: int = 7
    pages_beside_answer: int = 1
    most_running: int = 4096
    ended_rows_leave_before_admission: bool = True
    rows_about_to_end_sit_out: bool = True
    empty_batch_opens_admission: bool = True
    spent_chunk_ends_pass: bool = True
    retraction_evicts_for_steps: int = 20
    ended_splits_at_prompt: bool = True
    running_splits_at_prompt: bool = True
