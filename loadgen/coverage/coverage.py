"""Which cells a load has been through (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .cells import Cell, Relation, StepShape, cell_of
from .reachable import reachable

if TYPE_CHECKING:
    from ..scenarios.base import ServerTraits


class Coverage:
    """Counts the decode steps of a load by cell.

    Attributes:
        reachable: the cells that can exist on this server.
        hits: steps by cell, those included that were thought unreachable.
    """

    def __init__(self, server: ServerTraits) -> None:
        self.reachable = reachable(server)
        self.hits: Counter[Cell] = Counter()
        self._tight = frozenset(cell for cell in self.reachable if cell.relation is Relation.TIGHT)
        self._covered = 0

    def observe(self, step: StepShape) -> Cell | None:
        """Count a step; its cell, if it falls in one."""
        cell = cell_of(step)
        if cell is not None:
            self._covered += cell not in self.hits and cell in self._tight
            self.hits[cell] += 1
        return cell

    def observe_all(self, steps: Iterable[StepShape]) -> None:
        for step in steps:
            self.observe(step)

    @property
    def reachable_tight(self) -> frozenset[Cell]:
        return self._tight

    @property
    def covered(self) -> int:
        """Reachable tight cells that were hit."""
        return self._covered

    @property
    def share(self) -> float:
        """Those of all reachable tight cells, from 0 to 1; 0 when there are none."""
        return self._covered / len(self._tight) if self._tight else 0.0

    @property
    def missing(self) -> frozenset[Cell]:
        """Reachable tight cells that were not hit yet."""
        return self._tight - self.hits.keys()

    @property
    def unforeseen(self) -> frozenset[Cell]:
        """Cells that were hit, though thought unreachable."""
        return frozenset(self.hits) - self.reachable
