"""The scenarios, by name."""

from __future__ import annotations

from typing import Any

from .base import EngineNeeds, Misfit, NoOptions, Observation, ObservedStep, Restart, Scenario, ServerTraits, Wave
from .steady import Steady
from .tight import Tight
from .waves import Waves

SCENARIOS: dict[str, type[Scenario[Any]]] = {scenario.name: scenario for scenario in (Tight, Steady, Waves)}

__all__ = [
    "SCENARIOS",
    "EngineNeeds",
    "Misfit",
    "NoOptions",
    "Observation",
    "ObservedStep",
    "Restart",
    "Scenario",
    "ServerTraits",
    "Wave",
]
