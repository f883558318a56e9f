"""`mixed`: each kind of tight step that the pool can have, one after the other, and then a mix of them.

The mechanism it leans on is that SGLang takes in all requests of one POST before it schedules the first. So what an
idle server does with them is determined, and the model of its scheduler tells it beforehand (`loadgen.volleys`). While
cells of the edge are left that no decode step fell in (`loadgen.coverage`), each volley is aimed at one of them: so
many rows, of which so many cross in the same step, with so many trailing rows, and just as many pages free; right
after a retraction, a prefill, or neither. When no cell is left, volleys of the kinds in the mix follow, in shares of
the decode steps. On large pools, which take long to fill, one volley is aimed at many cells (`loadgen.volleys.chain`).

What was hit is taken from what the probe saw, not from the model. Where the two differ, since the release is another
or something else holds pages, a cell is aimed at again with another volley, and after some that were sent in vain
the others come first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pydantic import Field, model_validator

from ..coverage import Coverage, Filler
from ..requests.wave import Wave
from ..sglang.launch_arguments import over_committing
from ..sglang.pages import Pool, pages_for
from ..sglang.releases import RELEASES
from ..sglang.server import EngineNeeds, ServerConfiguration
from ..sglang.steps import ModelStep, ObservedStep
from ..volleys.chain import Chains
from ..volleys.planner import KINDS, Planner, Volley
from ..volleys.random_volleys import RANDOM_VOLLEYS
from .base import NoOptions, Observation, PoolBounds, Scenario

_PREFILL_TOKENS = 8192
_CANDIDATE_PAGES = 192
_MOST_FAILED = 3
_UNFORESEEN = 3
_PLANS_PER_RETRY = 8
_CHAINED_PAGES = 96
_LONGEST_SEARCH = 300
_FEWEST_CHAINED = 6


class Weights(NoOptions):
    """Share of the decode steps that each kind of volley is to make, when no cell is left to aim at."""

    joint: float = Field(default=3, ge=0, description="Rows that cross together, in a full pool.")
    retraction: float = Field(default=2, ge=0, description="Rows that cross just after others were retracted.")
    staggered: float = Field(default=10, ge=0, description="Rows that cross one after the other, or in small groups.")
    long_answers: float = Field(default=1, ge=0, description="Few rows that cross again and again.")
    burst: float = Field(default=1, ge=0, description="Many more requests than fit, all at once.")

    @model_validator(mode="after")
    def _some(self) -> Weights:
        if not any(self.model_dump().values()):
            raise ValueError("all are 0; allowed: at least one above 0")
        return self


class MixedOptions(NoOptions):
    """Options of `mixed`."""

    weights: Weights = Field(default_factory=Weights, description="Shares of the kinds of volleys in the mix.")


class Mixed(Scenario[MixedOptions]):
    name = "mixed"
    summary = "Aims at each kind of tight step in turn, those not yet hit first, then goes on with a weighted mix"
    targets_cells = True
    follows = True
    bounds = PoolBounds(
        page_size=16,
        page_too_small="too small to aim at single steps",
        pages=8,
        pages_at_fault="the pool is filled and emptied again for each step that is aimed at",
        most_pages=1024,
    )
    Options = MixedOptions

    def __init__(self, server: ServerConfiguration, options: MixedOptions, seed: int) -> None:
        super().__init__(server, options, seed)
        self.coverage = Coverage(server)
        chunked_prefill_size = _prefill_pages(server.pool) * server.pool.page_size
        tight = self.coverage.reachable_tight
        self._cells = frozenset(cell for cell in tight if cell.filler is Filler.RUNNING_ROWS)
        self._planner = Planner(server.pool, server.overlap, self._cells, chunked_prefill_size, seed, server.rules)
        # Small pools are filled as fast as a chain of volleys would make its way.
        chained = self._cells if server.pool.pages >= _CHAINED_PAGES else ()
        self._chains = Chains(self._planner, chained, seed)
        self._next: Volley | None = None
        self._last_volley: Volley | None = None
        self._seen: list[ObservedStep] = []
        self._unforeseen = 0
        self._steps_by_kind: Counter[str] = Counter()
        self._plans = 0
        self._idle_looks = 0

    @classmethod
    def engine_needs(cls, pool: Pool, options: MixedOptions) -> EngineNeeds:
        return over_committing(_prefill_pages(pool), pool)

    @classmethod
    def longest_request(cls, pool: Pool, options: MixedOptions) -> int:
        return (pool.pages - 1) * pool.page_size

    def next_wave(self, seen: Observation) -> Wave:
        self.coverage.observe_all(seen.steps)
        self._seen += seen.steps
        if self._next is not None and self._next.cells and self._next.cells <= self.coverage.hits.keys():
            self._next = None
        if self._next is None:
            self._next = self._plan()
        if seen.open_requests:
            return Wave()
        self._settle()
        volley, self._next = self._next, None
        if volley is None:
            # The search goes on at the next look, but not for long.
            self._idle_looks += 1
            volley = self._chains.as_it_is(_FEWEST_CHAINED)
            if volley is None and self._idle_looks > _LONGEST_SEARCH:
                volley = self._draw()
        if volley is None:
            return Wave()
        self._idle_looks = 0
        self._last_volley = volley
        self._seen = []
        return Wave.of(volley.shapes)

    def _plan(self) -> Volley | None:
        missing = self.coverage.missing & self._cells
        wanted = {cell for cell in missing if self._planner.failed[cell] < _MOST_FAILED}
        if not wanted:
            self._plans += 1
            if self._plans % _PLANS_PER_RETRY or not missing:
                return self._draw()
            # They were tried often: they have a turn now and then.
            wanted = set(missing)
        candidates = max(1, _CANDIDATE_PAGES // self.server.pool.pages)
        if self._chains.can_propose(wanted):
            return self._chains.propose(wanted, candidates)
        return self._planner.propose(wanted, candidates)

    def _draw(self) -> Volley | None:
        """Of the kinds in the mix that which lags most behind its share of the decode steps."""
        weights = self.options.weights.model_dump()
        kinds = [kind for kind in KINDS if weights[kind]]
        kinds.sort(key=lambda kind: self._steps_by_kind[kind] / weights[kind])
        # Of some kinds only those are known that were aimed at something: where nothing can be, the drawn ones serve.
        for kind in (*kinds, *RANDOM_VOLLEYS):
            volley = self._planner.draw(kind)
            if volley is not None:
                return volley
        return None

    def _settle(self) -> None:
        """Compare what the last volley did with what was foreseen."""
        volley, self._last_volley = self._last_volley, None
        if volley is None:
            return
        self._steps_by_kind[volley.kind] += len(self._seen)
        for cell in sorted(volley.cells - self.coverage.hits.keys()):
            self._planner.put_back(cell)
        self._unforeseen = 0 if _same(self._seen, volley.foreseen) else self._unforeseen + 1
        if self._unforeseen >= _UNFORESEEN:
            self._unforeseen = 0
            self._follow_other_rules(volley)

    def _follow_other_rules(self, volley: Volley) -> None:
        """If the rules of another release tell what the last volley did, follow those."""
        for rules in RELEASES.others(self._planner.rules):
            foreseen = self._planner.foresee(volley.shapes, rules)
            if _same(self._seen, foreseen):
                self._planner.rules = rules
                return


def _same(seen: Sequence[ObservedStep], foreseen: Sequence[ModelStep]) -> bool:
    return [_compared_fields(step) for step in seen] == [_compared_fields(step) for step in foreseen]


def _compared_fields(step: ObservedStep) -> tuple[int, ...]:
    # Not how many prefills: the first step counts those too in which what was retracted before got its last token.
    return (step.batch_size, step.need, step.free, step.trailing, step.prefill_batches > 0, step.retractions)


def _prefill_pages(pool: Pool) -> int:
    return pages_for(_PREFILL_TOKENS, pool.page_size)
