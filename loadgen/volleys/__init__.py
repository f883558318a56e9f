"""Volleys: requests that an idle server gets in one POST, and what follows from them (pure).

SGLang takes in all requests of one POST before it schedules the first. A server that was idle then has no past, and no
clock has a part in what it does: which decode steps follow is determined by the lengths alone, and the model of its
scheduler tells them beforehand. So a volley can be aimed at a step of a given kind, tried on the model, and be sent
only if it hits.
"""

from __future__ import annotations

from .idle_candidates import TargetStep, idle_candidate
from .random_volleys import RANDOM_VOLLEYS
from .volley_forecast import VolleyForecast

__all__ = ["RANDOM_VOLLEYS", "TargetStep", "VolleyForecast", "idle_candidate"]
