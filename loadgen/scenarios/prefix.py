"""`prefix`: the prefix cache fills the pool, and gives up its last pages for a step that needs them all.

The mechanism it leans on is SGLang's eviction. What has ended stays in the radix cache, so that nearly the whole pool
is taken, and a prefill or a decode step evicts what it needs: as many pages as there are rows, when it gets them
(`mem_cache/allocation.py`). Such a step is tight when all rows need a page, or when the cache has given up its last.

As in `mixed`, volleys of requests are sent to an idle server, which does with them what the model of its scheduler has
told beforehand; here the model also follows what is in the cache from one volley to the next. Each volley is aimed
at the cell of the edge that was hit least. When the server does something else, the cache is flooded: one volley needs
every page, so that what is cached afterwards is known again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ..coverage import Coverage, Filler
from ..requests.wave import Wave
from ..sglang.launch_arguments import over_committing
from ..sglang.limits import longest_admitted_prompt
from ..sglang.pages import Pool
from ..sglang.releases import RELEASES
from ..sglang.rules import Rules
from ..sglang.scheduler import Scheduler
from ..sglang.server import EngineNeeds, ServerConfiguration
from ..sglang.steps import ModelStep, ObservedStep
from ..volleys.cached_candidates import flooding
from ..volleys.cached_planner import CachedPlanner, CachedVolley, VolleyAndServer, with_foresight
from .base import NoOptions, Observation, PoolBounds, Restart, Scenario

_MOST_PREFILL_PAGES = 64
_CANDIDATE_PAGES = 192
_UNFORESEEN = 4
_LONGEST_SEARCH = 20


class Prefix(Scenario[NoOptions]):
    name = "prefix"
    summary = "The prefix cache fills the pool, and is evicted to the last page by the steps that need it"
    targets_cells = True
    follows = True
    bounds = PoolBounds(
        page_size=16,
        page_too_small="too small to aim at single steps",
        pages=8,
        pages_at_fault="the pool is filled anew for each step that is aimed at",
        most_pages=1024,
    )
    Options = NoOptions

    def __init__(self, server: ServerConfiguration, options: NoOptions, seed: int) -> None:
        super().__init__(server, options, seed)
        self.coverage = Coverage(server)
        tight = self.coverage.reachable_tight
        # Launched otherwise than it needs, without the cache, a server has only the others.
        cells = frozenset(cell for cell in tight if cell.filler is Filler.PREFIX_CACHE) or tight
        self._has_targets = bool(cells)
        self._planner = CachedPlanner(server.overlap, cells, seed)
        self._rules = server.rules
        self._others = deque(RELEASES.others(server.rules))
        self._unforeseen = 0
        self._idle_looks = 0
        self._seen: list[ObservedStep] = []
        self._last_volley: CachedVolley | None = None
        # Whether what was sent, or is about to be, is a flood.
        self._flooded = False
        # As it will be when what was sent has ended.
        self._server = self._model(self._rules)
        self._next = self._flood()

    @classmethod
    def engine_needs(cls, pool: Pool, options: NoOptions) -> EngineNeeds:
        return over_committing(_prefill_pages(pool), pool, prefix_cache=True)

    @classmethod
    def longest_request(cls, pool: Pool, options: NoOptions) -> int:
        return longest_admitted_prompt(pool) + 1

    def next_wave(self, seen: Observation) -> Wave:
        self.coverage.observe_all(seen.steps)
        self._seen += seen.steps
        if self._next is None:
            self._next = self._plan()
        if seen.open_requests:
            return Wave()
        self._settle(seen.elapsed)
        if self._next is None:
            # The search goes on at the next look, but not for long.
            self._idle_looks += 1
            if self._idle_looks <= _LONGEST_SEARCH:
                return Wave()
            self._next = self._planner.stir(self._server)
        if self._next is None:
            return Wave()
        self._idle_looks = 0
        self._last_volley, self._server = self._next
        self._next = None
        self._seen = []
        return Wave(self._last_volley.requests)

    def _plan(self) -> VolleyAndServer | None:
        if not self._has_targets:
            return self._planner.stir(self._server)
        candidates = max(1, _CANDIDATE_PAGES // self.server.pool.pages)
        return self._planner.propose(self._server, self.coverage.hits, candidates)

    def _settle(self, elapsed: float) -> None:
        """Compare what the last volley did with what was foreseen; when they differ, what is cached is not known."""
        volley, self._last_volley = self._last_volley, None
        if volley is None:
            return
        # What is evicted by the flood depends on what was cached.
        flooded, self._flooded = self._flooded, False
        compared = _fields_after_flood if flooded else _compared_fields
        if list(map(compared, self._seen)) == list(map(compared, volley.foreseen)):
            self._unforeseen = 0
            return
        self._unforeseen += 1
        other = self._other_rules(flooded)
        if other is not None:
            self._others.remove(other)
            self._others.append(self._rules)
            self._rules = other
            self._server = self._model(other)
        cause = "the server did not do what was foreseen"
        self.restarts.append(Restart(elapsed, cause, f"{cause}: {_difference(self._seen, volley.foreseen)}"))
        self._next = self._flood()

    def _flood(self) -> VolleyAndServer | None:
        self._flooded = True
        return with_foresight(self._server, flooding(self.server.pool))

    def _other_rules(self, flooded: bool) -> Rules | None:
        """The rules of another release, when those that are followed do not tell what the server does."""
        fitting = (rules for rules in self._others if flooded and self._is_flood_of(rules))
        due = self._others[0] if self._others and self._unforeseen % _UNFORESEEN == 0 else None
        return next(fitting, due)

    def _is_flood_of(self, rules: Rules) -> bool:
        """Whether what was seen is what a server with these rules makes of a flood."""
        flood = with_foresight(self._model(rules), flooding(self.server.pool))
        if flood is None:
            return False
        return list(map(_fields_after_flood, self._seen)) == list(map(_fields_after_flood, flood[0].foreseen))

    def _model(self, rules: Rules) -> Scheduler:
        pool = self.server.pool
        return Scheduler(
            pool,
            overlap=self.server.overlap,
            rules=rules,
            chunked_prefill_size=_prefill_pages(pool) * pool.page_size,
            prefix_cache=self.server.prefix_cache,
        )


def _difference(seen: Sequence[ObservedStep], foreseen: Sequence[ModelStep]) -> str:
    """The first step that differs."""
    for number, (one, other) in enumerate(
        zip(map(_compared_fields, seen), map(_compared_fields, foreseen), strict=False), 1
    ):
        if one != other:
            return f"step {number} of {len(foreseen)} was {one}, foreseen {other}"
    return f"{len(seen)} steps, foreseen {len(foreseen)}"


def _compared_fields(step: ObservedStep) -> tuple[int, ...]:
    return (*_fields_after_flood(step), step.evicted_pages, step.cached)


def _fields_after_flood(step: ObservedStep) -> tuple[int, ...]:
    return (step.batch_size, step.need, step.free, step.trailing, step.prefill_batches, step.retractions)


def _prefill_pages(pool: Pool) -> int:
    """Of one prefill pass."""
    return min(pool.pages, _MOST_PREFILL_PAGES)
