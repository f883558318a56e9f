"""Delta debugging over waves: from a load on which an engine crashes to the shortest that still does (pure).

`search` proposes loads and is told whether they crash; whoever drives it makes the trials. `on_model` finds likely
ones beforehand, on the model of the scheduler.
"""

from __future__ import annotations

from .case import Case, CaseWave
from .search import AS_IT_IS, Proposal, search

__all__ = ["AS_IT_IS", "Case", "CaseWave", "Proposal", "search"]
