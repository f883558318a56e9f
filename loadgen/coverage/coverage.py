"""Which cells a load has been through (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from ..sglang.server import ServerConfiguration
from ..sglang.steps import StepShape
from .cells import Cell, Relation, cell_of
from .reachable import reachable


class Coverage:
    """Counts the decode steps of a load by cell.

    Attributes:
        reachable: the cells that can exist on the server; of several coverages together, on one of their servers.
        hits: steps by cell, those included that were thought unreachable.
        unforeseen: cells that were hit on a server on which they were thought unreachable.
    """

    def __init__(self, server: ServerConfiguration) -> None:
        self._begin(reachable(server))

    def _begin(self, cells: frozenset[Cell]) -> None:
        self.reachable = cells
        self.hits: Counter[Cell] = Counter()
        self.unforeseen: set[Cell] = set()
        self._tight = frozenset(cell for cell in cells if cell.relation is Relation.TIGHT)
        self._covered: set[Cell] = set()

    @classmethod
    def together(cls, coverages: Iterable[Coverage]) -> Coverage:
        """What several loads have been through between them."""
        parts = list(coverages)
        whole = cls.__new__(cls)
        whole._begin(frozenset().union(*(part.reachable for part in parts)))
        for part in parts:
            whole.hits.update(part.hits)
            whole.unforeseen |= part.unforeseen
            whole._covered |= part._covered
        return whole

    def observe(self, step: StepShape) -> Cell | None:
        """Count a step; its cell, if it falls in one."""
        cell = cell_of(step)
        if cell is not None:
            self.add({cell: 1})
        return cell

    def observe_all(self, steps: Iterable[StepShape]) -> None:
        for step in steps:
            self.observe(step)

    def add(self, steps: Mapping[Cell, int]) -> None:
        """Count steps by cell."""
        for cell, count in steps.items():
            if cell not in self.hits:
                if cell not in self.reachable:
                    self.unforeseen.add(cell)
                elif cell in self._tight:
                    self._covered.add(cell)
            self.hits[cell] += count

    @property
    def reachable_tight(self) -> frozenset[Cell]:
        return self._tight

    @property
    def covered(self) -> frozenset[Cell]:
        """Reachable tight cells that were hit."""
        return frozenset(self._covered)

    @property
    def share(self) -> float:
        """Those of all reachable tight cells, from 0 to 1; 0 when there are none."""
        return len(self._covered) / len(self._tight) if self._tight else 0.0

    @property
    def missing(self) -> frozenset[Cell]:
        """Reachable tight cells that were not hit yet."""
        return self._tight - self._covered
