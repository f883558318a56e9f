"""A pass of admissions, as `schedule_policy.py` goes through the queue."""

from __future__ import annotations

import enum

from ..admission import charge, is_admitted
from ..pages import pages_for
from ..rules import Rules
from .page_pool import PagePool
from .prefix_cache import PrefixCache
from .request import Request


class AdmissionResult(enum.Enum):
    """What stands in the way of the next admission: AddReqResult."""

    CONTINUE = enum.auto()
    NO_TOKEN = enum.auto()
    OTHER = enum.auto()


class PrefillAdder:
    """First come, first served, with SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION=0.

    So nothing is charged for tokens that are still to be decoded, by the admitted or by those that run, whatever
    the new token ratio.

    Attributes:
        admitted: requests, and how many tokens of each are prefilled in this pass.
        unfinished: the request admitted in this pass whose prompt it does not bring to its end.
    """

    def __init__(
        self, pool: PagePool, chunked_prefill_size: int, rules: Rules, cache: PrefixCache | None = None
    ) -> None:
        self._rules = rules
        self._page_size = pool.size.page_size
        self._pool = pool
        self._cache = cache
        self._charged = 0
        self._input = rules.prefill_tokens
        self._chunk = chunked_prefill_size
        self.admitted: list[tuple[Request, int]] = []
        self.unfinished: Request | None = None

    def result(self) -> AdmissionResult:
        """budget_state."""
        if self._tokens() <= 0:
            return AdmissionResult.NO_TOKEN
        return AdmissionResult.OTHER if self._input <= 0 or self._chunk <= 0 else AdmissionResult.CONTINUE

    def add(self, request: Request) -> AdmissionResult:
        """add_one_req, _select_prefill_admission."""
        tokens = request.to_prefill
        if self._cache is not None:
            # What is in the tree already is locked, so that it cannot be counted twice.
            request.pages = self._cache.match(request)
            request.tokens = len(request.pages) * self._page_size
            tokens -= request.tokens
        if not is_admitted(tokens, self._tokens(), self._page_size, self._rules):
            self._let_go(request)
            return AdmissionResult.NO_TOKEN
        if self._paged(tokens) > self._chunk:
            tokens = self._chunk // self._page_size * self._page_size
            if tokens <= 0:
                self._let_go(request)
                return AdmissionResult.OTHER
            self.unfinished = request
        self._charge(request, tokens)
        return self.result()

    def add_unfinished(self, request: Request) -> Request | None:
        """add_chunked_req: goes on with a prompt; returns the request when its end is still not reached."""
        left = request.to_prefill - request.tokens
        limit = min(self._chunk, self._tokens()) if self._tokens() > 0 else self._chunk
        self._charge(request, min(left, limit))
        return request if left > limit else None

    def _let_go(self, request: Request) -> None:
        if self._cache is not None:
            self._cache.unlock(request)
            request.pages, request.tokens = [], 0

    def _charge(self, request: Request, tokens: int) -> None:
        """_update_prefill_budget, PrefillBudget.reserve."""
        self.admitted.append((request, tokens))
        self._charged += charge(tokens, self._page_size, self._rules)
        self._input -= self._paged(tokens)
        self._chunk -= self._paged(tokens)

    def _tokens(self) -> int:
        """PrefillBudget.remaining_total: tokens that are free or can be made so, and are not charged yet."""
        pages = self._pool.free_pages + (self._cache.evictable_pages if self._cache is not None else 0)
        return pages * self._page_size - self._charged

    def _paged(self, tokens: int) -> int:
        return pages_for(tokens, self._page_size) * self._page_size
