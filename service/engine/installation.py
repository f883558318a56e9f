"""What an engine is."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from service.engine.simulated import Simulation

NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._+-]*"


class Engine(BaseModel):
    """One SGLang installation, known by the interpreter that it runs under."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=f"^{NAME_PATTERN}$", description="How runs refer to the engine.")
    python: Path = Field(description="The interpreter whose environment holds SGLang.")
    origin: Literal["installed", "added", "simulated"] = Field(
        description="Built by lastpage, registered by its interpreter, or no SGLang at all."
    )
    version: str | None = Field(default=None, description="SGLang's version, as far as it is known without asking.")
    base: str | None = Field(default=None, description="The engine whose packages this one shares.")
    simulation: Simulation | None = Field(default=None, description="How it is simulated; null for a real engine.")

    @property
    def folder(self) -> Path:
        """The environment's folder."""
        return self.python.parent.parent
