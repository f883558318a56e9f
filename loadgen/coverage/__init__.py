"""Coverage of the edge: which of the shapes that a tight pool can have a load has been through (pure)."""

from ..sglang.steps import StepShape
from .cells import After, Cell, Filler, Relation, cell_of
from .coverage import Coverage
from .reachable import reachable

__all__ = ["After", "Cell", "Coverage", "Filler", "Relation", "StepShape", "cell_of", "reachable"]
