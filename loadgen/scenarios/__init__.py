"""The scenarios, by name."""

from __future__ import annotations

from typing import Any

from ..requests.wave import Wave
from ..sglang.server import EngineNeeds, ServerConfiguration
from ..sglang.steps import ObservedStep
from .abort import Abort
from .ballast import Ballast
from .base import Misfit, NoOptions, Observation, Restart, Scenario
from .burst import Burst
from .churn import Churn
from .extend import Extend
from .mixed import Mixed
from .prefix import Prefix
from .replay import Replay
from .steady import Steady
from .tight.scenario import Tight
from .waves.scenario import Waves

_SCENARIOS: tuple[type[Scenario[Any]], ...] = (
    Tight,
    Mixed,
    Prefix,
    Churn,
    Burst,
    Extend,
    Abort,
    Ballast,
    Replay,
    Steady,
    Waves,
)
SCENARIOS: dict[str, type[Scenario[Any]]] = {scenario.name: scenario for scenario in _SCENARIOS}

__all__ = [
    "SCENARIOS",
    "EngineNeeds",
    "Misfit",
    "NoOptions",
    "Observation",
    "ObservedStep",
    "Restart",
    "Scenario",
    "ServerConfiguration",
    "Wave",
]
