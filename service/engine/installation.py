"""What an engine is, and what can be wrong with one.

EngineError
├── EngineNotFound        no engine of that name, or none at all
├── EngineNameRefused     the name cannot be used, or is taken
├── EngineInUse           another engine is built on this one
└── InstallFailed         the environment could not be built
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._+-]*"


class EngineError(RuntimeError):
    """Something about an engine that the person who asked can put right."""


class EngineNotFound(EngineError):
    """No such engine."""


class EngineNameRefused(EngineError):
    """The name cannot be used for this engine."""


class EngineInUse(EngineError):
    """The engine cannot be removed: another one is built on it."""


class InstallFailed(EngineError):
    """The engine's environment could not be built. The message ends with the log's tail."""


class Engine(BaseModel):
    """One SGLang installation, known by the interpreter that it runs under."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=f"^{NAME_PATTERN}$", description="How runs refer to the engine.")
    python: Path = Field(description="The interpreter whose environment holds SGLang.")
    origin: Literal["installed", "added"] = Field(description="Built by lastpage, or registered by its interpreter.")
    version: str | None = Field(default=None, description="SGLang's version, as far as it is known without asking.")
    base: str | None = Field(default=None, description="The engine whose packages this one shares.")

    @property
    def folder(self) -> Path:
        """The environment's folder."""
        return self.python.parent.parent
