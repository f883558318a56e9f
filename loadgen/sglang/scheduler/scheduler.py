"""SGLang's scheduler, one iteration of its event loop at a time (pure).

It follows SGLang's files under `sglang/srt/managers`, launched with no early stop and nothing reserved for tokens to
come. Where releases differ it asks their `Rules`. Of what requests say only which of their prompts begin alike is
known, for the radix cache.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterable

from ..decoding import retraction_rank, room_after_retraction, room_for_prefill, room_for_step
from ..limits import check_servable
from ..pages import Pool, pages_for
from ..releases import NEWEST
from ..rules import Rules
from ..shape import Segment, Shape
from ..steps import ModelStep
from .batch import Batch
from .page_pool import PagePool
from .prefill_adder import AdmissionResult, PrefillAdder
from .prefix_cache import PrefixCache
from .request import Request

CHUNKED_PREFILL_SIZE = 8192


class Scheduler:
    """Takes requests in, and makes one iteration of the event loop at a time.

    Attributes:
        steps: every decode step so far, as the probe would have recorded it.
        ended: requests that ended, in order.
        skipped: how often a decode step was put off for the pages of requests that were about to end.
        retractions: how many requests were retracted.
        prefills, tight_prefills: how many prefill batches there were, and how many of them took exactly the free pages.
        prefilled_tokens: tokens of them all.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        overlap: bool = True,
        rules: Rules = NEWEST,
        chunked_prefill_size: int = CHUNKED_PREFILL_SIZE,
        prefix_cache: bool = False,
    ) -> None:
        self.pool = PagePool(pool)
        self.cache = PrefixCache(self.pool, rules) if prefix_cache else None
        self.steps: list[ModelStep] = []
        self.ended: list[Request] = []
        self.skipped = 0
        self.retractions = 0
        self.prefills = self.tight_prefills = self.prefilled_tokens = 0
        self._page_size = pool.page_size
        self._overlap = overlap
        self._rules = rules
        self._chunked_prefill_size = chunked_prefill_size
        self._waiting: list[Request] = []
        self._running = Batch()
        self._last: Batch | None = None
        self._results: deque[Batch] = deque()
        self._unfinished: Request | None = None
        self._prefill_batches = 0
        self._retractions_before = 0
        self._evicted_pages_before = 0
        self._submitted = 0

    @property
    def waiting(self) -> int:
        """Requests in the waiting queue."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Rows of the running batch."""
        return len(self._running.requests)

    @property
    def stalled(self) -> bool:
        """Nothing runs, and at the head of the queue stands a request that could not be admitted."""
        return bool(self._waiting) and not (self._running.requests or self._results or self._unfinished or self._last)

    @property
    def idle(self) -> bool:
        return not (self._waiting or self._running.requests or self._results or self._unfinished or self._last)

    def fork(self) -> Scheduler:
        """An idle scheduler in the same state, with no history: what is done to it leaves this one alone."""
        assert self.idle
        forked = copy.copy(self)
        # Together, since the cache gives its pages back to the pool.
        forked.pool, forked.cache = copy.deepcopy((self.pool, self.cache))
        forked.steps, forked.ended = [], []
        forked.skipped = forked.retractions = forked._retractions_before = 0
        forked._waiting, forked._results, forked._running = [], deque(), Batch(is_full=self._running.is_full)
        return forked

    def submit(self, shape: Shape, shared: Segment | None = None) -> Request:
        """A request arrives.

        Args:
            shared: what its prompt begins with, as others' prompts may; the rest of it is its own.

        Raises:
            NotServable: SGLang would refuse it, or cut its answer.
        """
        check_servable(shape, self.pool.size, self._rules)
        self._submitted += 1
        request = Request(shape, number=self._submitted, shared=shared)
        self.accept(request)
        return request

    def accept(self, request: Request) -> None:
        """A request arrives that is taken in as it is: one whose prompt is too long waits at the head of the queue."""
        self._waiting.append(request)

    def abort(self, request: Request) -> None:
        """scheduler.py, abort_request: it leaves the queue at once, or the batch with its next token."""
        request.aborted = True
        waiting = len(self._waiting)
        self._waiting = [other for other in self._waiting if other is not request]
        if len(self._waiting) < waiting:
            request.finished = True
        else:
            request.shape = Shape(request.shape.prompt_tokens, request.output + 1)

    def put_aside(self) -> Request | None:
        """Forget the oldest request of the queue, as no release does: it is never served."""
        return self._waiting.pop(0) if self._waiting else None

    def flush(self) -> None:
        """scheduler.py, flush_cache: an idle scheduler forgets its prefix cache."""
        assert self.idle
        self.pool = PagePool(self.pool.size)
        if self.cache is not None:
            evicted_pages = self.cache.evicted_pages
            self.cache = PrefixCache(self.pool, self._rules)
            self.cache.evicted_pages = evicted_pages

    def iterate(self) -> None:
        """scheduler.py, event_loop_normal and event_loop_overlap."""
        batch = self._next_batch()
        if batch is not None:
            self._results.append(Batch(list(batch.requests), batch.is_prefill, unfinished=batch.unfinished))
        # With overlap, results are seen after the next batch was launched.
        if self._last is not None if self._overlap else batch is not None:
            self._process(self._results.popleft())
        self._last = batch

    def _next_batch(self) -> Batch | None:
        """scheduler.py, get_next_batch_to_run."""
        if self.cache is not None and self._unfinished is not None:
            self.cache.keep(self._unfinished)
        self._merge_last_prefill()
        if self._rules.ended_rows_leave_before_admission:
            self._drop_finished()
        prefill = self._prefill()
        if prefill is not None:
            return prefill
        return self._decode() if self._running.requests else None

    def _drop_finished(self) -> None:
        """filter_batch: rows that have ended leave the batch, and admission opens."""
        finished = [request for request in self._running.requests if request.finished]
        self._running.drop(finished)
        if finished:
            self._running.is_full = False

    def _merge_last_prefill(self) -> None:
        last = self._last
        if last is None or not last.is_prefill:
            return
        leaving = [r for r in last.requests if r.finished or r is self._unfinished or r is last.unfinished]
        last.drop(leaving)
        if leaving:
            self._running.is_full = False
        if self._running.requests:
            self._running.requests = self._running.requests + last.requests
        elif last.requests:
            self._running = last

    def _prefill(self) -> Batch | None:
        """scheduler.py, _get_new_batch_prefill_raw."""
        running = self._running
        if not running.requests and self._rules.empty_batch_opens_admission:
            running.is_full = False
        if self._unfinished is None and (running.is_full or not self._waiting):
            return None
        adder = PrefillAdder(self.pool, self._chunked_prefill_size, self._rules, self.cache)
        going_on = self._unfinished
        if going_on is not None:
            self._unfinished = adder.add_unfinished(going_on)
        for request in self._waiting:
            if self._rules.spent_chunk_ends_pass and adder.result() is AdmissionResult.OTHER:
                break
            result = adder.add(request)
            if result is AdmissionResult.NO_TOKEN:
                serving = bool(adder.admitted or running.requests)
                running.is_full = serving or not self._rules.empty_batch_opens_admission
            if result is not AdmissionResult.CONTINUE:
                break
        if not adder.admitted:
            return None
        # First come, first served: those of the queue that were admitted stand at its head.
        del self._waiting[: sum(request is not going_on for request, _ in adder.admitted)]
        self._unfinished = adder.unfinished or self._unfinished
        self._make_room(room_for_prefill((tokens for _, tokens in adder.admitted), self._page_size))
        free_before = self.pool.free_pages
        for request, tokens in adder.admitted:
            self.prefilled_tokens += tokens
            request.retracted = False
            request.pages += self.pool.extend(request.tokens, request.tokens + tokens)
            request.tokens += tokens
        self._prefill_batches += 1
        self.prefills += 1
        self.tight_prefills += 0 == self.pool.free_pages < free_before
        return Batch([request for request, _ in adder.admitted], is_prefill=True, unfinished=self._unfinished)

    def _decode(self) -> Batch | None:
        """scheduler.py, update_running_batch; None when the step is put off, or nobody is left to decode."""
        running = self._running
        self._drop_finished()
        rows_before = len(running.requests)
        finishing = self._finishing_in_flight()
        running.drop(finishing)
        if not running.requests:
            running.is_full = False
            return None
        if not self._fits(running.requests):
            if finishing:
                running.is_full = False
                self.skipped += 1
                return None
            self._retract()
        if len(running.requests) < rows_before:
            running.is_full = False
        if not running.requests:
            return None
        self._allocate()
        running.is_prefill = False
        running.unfinished = None
        return running

    def _finishing_in_flight(self) -> list[Request]:
        """scheduler.py, _reqs_finishing_inflight: rows whose last token is computed already."""
        if not self._overlap or not self._results or not self._rules.rows_about_to_end_sit_out:
            return []
        in_flight = set(map(id, self._results[0].requests))
        return [r for r in self._running.requests if id(r) in in_flight and r.ends_with_next_token]

    def _retract(self) -> None:
        """schedule_batch.py, retract_decode."""
        kept = sorted(
            self._running.requests, key=lambda r: retraction_rank(r.output, r.shape.prompt_tokens), reverse=True
        )
        enough = False
        while not enough and len(kept) > 1:
            self._put_back(kept.pop())
            self._make_room(room_after_retraction(len(kept), self._rules))
            enough = self._fits(kept)
        if not self._fits(kept):
            kept[0].aborted = kept[0].finished = True
            self._give_up(kept[0])
            self.ended.append(kept.pop())
        # The rows stay in the order of the sort.
        self._running.requests = kept

    def _put_back(self, request: Request) -> None:
        """release_req, Req.reset_for_retract: it waits behind all others, to be prefilled with what it has answered."""
        self._give_up(request)
        request.retracted = True
        self.retractions += 1
        self._waiting.append(request)

    def _give_up(self, request: Request) -> None:
        """release_kv_cache, with nothing more put into the tree."""
        if self.cache is None:
            self.pool.release(request.pages)
        else:
            self.pool.release(self.cache.own(request))
            self.cache.unlock(request)
        request.pages = []
        request.tokens = 0

    def _allocate(self) -> None:
        """schedule_batch.py, prepare_for_decode: alloc_decode, in the order of the rows."""
        rows = self._running.requests
        self._make_room(room_for_step(len(rows), self._page_size))
        evicted_pages = self.cache.evicted_pages if self.cache is not None else 0
        needing = [row for row, request in enumerate(rows) if request.needs_page(self._page_size)]
        self.steps.append(
            ModelStep(
                step=len(self.steps) + 1,
                batch_size=len(rows),
                need=len(needing),
                free=self.pool.free_pages,
                trailing=len(rows) - 1 - needing[-1] if needing else 0,
                prefill_batches=self._prefill_batches,
                retractions=self.retractions - self._retractions_before,
                evicted_pages=evicted_pages - self._evicted_pages_before,
                cached=self.cache.evictable_pages if self.cache is not None else 0,
            )
        )
        self._evicted_pages_before = evicted_pages
        self._prefill_batches = 0
        self._retractions_before = self.retractions
        for request in rows:
            request.decode_steps += 1
            request.first_step = request.first_step or self.steps[-1].step
        for row, page in zip(needing, self.pool.take(len(needing)), strict=True):
            rows[row].pages.append(page)
            rows[row].crossings.append(rows[row].decode_steps)
        for request in rows:
            request.tokens += 1

    def _fits(self, requests: list[Request]) -> bool:
        """check_decode_mem: whether there are pages for their next decode step, or can be made."""
        pages = self._pages_needed(requests)
        self._make_room(pages * self._page_size)
        return pages <= self.pool.free_pages

    def _make_room(self, tokens: int) -> None:
        if self.cache is not None:
            self.cache.make_room(tokens)

    def _pages_needed(self, requests: Iterable[Request]) -> int:
        return sum(request.needs_page(self._page_size) for request in requests)

    def _process(self, result: Batch) -> None:
        """scheduler_components/batch_result_processor.py: a token for each row; pages of those that end come back."""
        for request in result.requests:
            if request.finished or request.retracted or request is result.unfinished:
                continue
            request.output += 1
            if request.output >= request.shape.max_new_tokens:
                self._end(request)
            elif result.is_prefill and self.cache is not None:
                self.cache.keep(request)

    def _end(self, request: Request) -> None:
        self.pool.release(request.pages if self.cache is None else self.cache.keep_ended(request))
        request.pages = []
        request.finished = True
        self.ended.append(request)

    def check(self, foreign_pages: int = 0) -> None:
        """No page is held twice, none is lost, and every request holds just the pages that its tokens fill.

        Args:
            foreign_pages: how many pages a stranger holds.
        """
        batches = [self._running, *self._results, *([self._last] if self._last else [])]
        known = {id(r): r for batch in batches for r in batch.requests}
        known |= {id(r): r for r in self._waiting}
        for request in known.values():
            expected = 0 if request.finished else pages_for(request.tokens, self._page_size)
            assert len(request.pages) == expected
        held: list[int] = []
        for request in known.values():
            held += request.pages if self.cache is None else self.cache.own(request)
        if self.cache is not None:
            self.cache.check()
            held += [page for node in self.cache.nodes for page in node.pages]
        self.pool.check(held, foreign_pages)
