"""Coverage of the edge as a run reports it, and how it is read back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from loadgen.coverage import After, Cell, Coverage, Relation
from loadgen.sglang.pages import Pool
from loadgen.sglang.releases import RELEASES, rules_for
from loadgen.sglang.server import ServerConfiguration
from service.runs.value import Value
from service.spec.spec import MAX_PAGE_SIZE, MAX_POOL_PAGES, MIN_PAGE_SIZE, MIN_POOL_PAGES

Steps = Annotated[int, Field(ge=1, le=2**63 - 1)]
"""How many decode steps a cell had."""


class CoveredServer(Value):
    """What of a server decides which cells can exist on it."""

    page_size: int = Field(ge=MIN_PAGE_SIZE, le=MAX_PAGE_SIZE)
    pool_pages: int = Field(ge=MIN_POOL_PAGES, le=MAX_POOL_PAGES)
    overlap: bool
    prefix_cache: bool
    max_running_requests: int | None = Field(default=None, ge=0)
    rules: str | None = Field(
        default=None, description="The first release of SGLang that schedules by the same rules; null: the newest."
    )

    @classmethod
    def of(cls, server: ServerConfiguration) -> CoveredServer:
        return cls(
            page_size=server.pool.page_size,
            pool_pages=server.pool.pages,
            overlap=server.overlap,
            prefix_cache=server.prefix_cache,
            max_running_requests=server.max_running_requests,
            rules=RELEASES.first_with(server.rules),
        )

    def configuration(self) -> ServerConfiguration:
        pool = Pool(self.page_size, self.pool_pages)
        rules = rules_for(self.rules).rules
        return ServerConfiguration(pool, self.overlap, self.prefix_cache, self.max_running_requests, rules=rules)


class CellShare(Value):
    """Tight cells, and how many of them were hit."""

    reachable: int = Field(ge=0)
    hit: int = Field(ge=0)


class EdgeCoverage(Value):
    """Which cells of the edge a run has been through.

    A cell is written as its relation, need, batch size, trailing rows, what filled the pool, and
    what came just before, as in `tight 1 8 4 running_rows prefill`.
    """

    share: float = Field(ge=0, le=1, description="Reachable tight cells that were hit, of all of them, from 0 to 1.")
    reachable: int = Field(ge=0, description="Tight cells that can exist on this server.")
    hit: int = Field(ge=0, description="Those of them that were hit.")
    unforeseen: int = Field(default=0, ge=0, description="Cells that were hit though thought unreachable.")
    after: dict[str, CellShare] = Field(
        default_factory=dict, description="The tight cells by what came between the step before and theirs."
    )
    server: CoveredServer = Field(description="What decides which cells can exist.")
    tight: dict[str, Steps] = Field(
        default_factory=dict, description="Steps by tight cell; told when the load has ended."
    )
    near: dict[str, Steps] = Field(
        default_factory=dict, description="Steps by cell one page over or under the edge; likewise."
    )
    unforeseen_cells: dict[str, Steps] = Field(
        default_factory=dict, description="Of both, those that were thought unreachable; likewise."
    )


def edge_coverage(coverage: Coverage, server: ServerConfiguration, *, cells: bool) -> EdgeCoverage:
    """What has been covered so far.

    Args:
        cells: with every single cell that was hit.
    """
    hits = sorted(coverage.hits.items()) if cells else []
    return EdgeCoverage(
        share=coverage.share,
        reachable=len(coverage.reachable_tight),
        hit=len(coverage.covered),
        unforeseen=len(coverage.unforeseen),
        after={
            after.value: CellShare(reachable=reachable, hit=_count(coverage.covered, after))
            for after in After
            if (reachable := _count(coverage.reachable_tight, after))
        },
        server=CoveredServer.of(server),
        tight={str(cell): steps for cell, steps in hits if cell.relation is Relation.TIGHT},
        near={str(cell): steps for cell, steps in hits if cell.relation is not Relation.TIGHT},
        unforeseen_cells={str(cell): steps for cell, steps in hits if cell in coverage.unforeseen},
    )


def read_back(stored: EdgeCoverage) -> Coverage:
    """The coverage that a run told.

    Raises:
        ValueError: it names a cell that is none, that stands among those of another relation, or that no pool of this
            size can have.
    """
    server = stored.server.configuration()
    hits = {Cell.parse(text): steps for text, steps in stored.tight.items()}
    if strays := [cell for cell in hits if cell.relation is not Relation.TIGHT]:
        raise ValueError(f"'{strays[0]}' stands among the tight cells, and is none")
    near = {Cell.parse(text): steps for text, steps in stored.near.items()}
    if strays := [cell for cell in near if cell.relation is Relation.TIGHT]:
        raise ValueError(f"'{strays[0]}' stands among the cells one page over or under the edge, and is none")
    if strays := [cell for cell in hits | near if cell.batch_size > server.pool.tokens]:
        raise ValueError(f"'{strays[0]}' has more rows than the pool has tokens")
    coverage = Coverage(server)
    coverage.add(hits | near)
    return coverage


def _count(cells: Iterable[Cell], after: After) -> int:
    return sum(cell.after is after for cell in cells)
