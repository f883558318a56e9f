"""The scenarios, by name."""

from __future__ import annotations

from ..requests.wave import Wave
from ..sglang.server import EngineNeeds, ServerConfiguration
from ..sglang.steps import ObservedStep
from .base import Misfit, NoOptions, Observation, Restart, Restarts, Scenario, Streamed
from .registry import SCENARIOS

__all__ = [
    "SCENARIOS",
    "EngineNeeds",
    "Misfit",
    "NoOptions",
    "Observation",
    "ObservedStep",
    "Restart",
    "Restarts",
    "Scenario",
    "ServerConfiguration",
    "Streamed",
    "Wave",
]
