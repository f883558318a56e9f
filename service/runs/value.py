"""Values of a run, which are also what is stored, reported and sent."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Value(BaseModel):
    """Base of the values here: immutable. Keys that a newer version wrote are passed over when read back."""

    model_config = ConfigDict(frozen=True, extra="ignore")
