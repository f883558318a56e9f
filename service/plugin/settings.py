"""What the controller tells the plugin, through the engine's environment."""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping
from dataclasses import dataclass

FLIGHT_VARIABLE = "LASTPAGE_FLIGHT"
ALLOCATOR_VARIABLE = "LASTPAGE_ALLOCATOR"
PROFILE_VARIABLE = "LASTPAGE_PROFILE"


class Allocator(str, enum.Enum):
    """Which page allocator the engine runs with."""

    INSTALLED = "installed"  # SGLang's own class, untouched
    PATCHED = "patched"  # the clamp guaranteed
    UNPATCHED = "unpatched"  # the clamp removed


class Profile(str, enum.Enum):
    """What the engine runs on."""

    ASCEND = "ascend"
    REHEARSAL = "rehearsal"  # a plain CPU, with SGLang's NPU allocator class
    SIMULATED = "simulated"  # no SGLang: a model of its scheduler, which shows nothing of a release


@dataclass(frozen=True)
class Settings:
    """The plugin's settings.

    Attributes:
        flight: path of the flight recorder file to write.
    """

    flight: str
    allocator: Allocator
    profile: Profile

    def environment(self) -> dict[str, str]:
        """The variables from which `from_environment` makes the same settings again."""
        return {
            FLIGHT_VARIABLE: self.flight,
            ALLOCATOR_VARIABLE: self.allocator.value,
            PROFILE_VARIABLE: self.profile.value,
        }

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Read the settings.

        Raises:
            KeyError: a variable is missing.
            ValueError: a variable has a value that is not allowed.
        """
        return cls(
            flight=environment[FLIGHT_VARIABLE],
            allocator=Allocator(environment[ALLOCATOR_VARIABLE]),
            profile=Profile(environment[PROFILE_VARIABLE]),
        )
