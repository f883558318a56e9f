"""A crash, as everybody shows it: events, reports, tables, metrics."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from service.engine.crash.signatures import CrashKind


class Crash(BaseModel):
    """One death, hang or silence of the engine, and what is left to look at."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    kind: CrashKind = Field(description="What kind of crash it was.")
    reason: str = Field(description="Why it is taken for that kind, in one sentence.")
    at: datetime = Field(description="When it happened, UTC.")
    line: str = Field(default="", exclude=True, description="The line of evidence that decided.")
    step: int | None = Field(
        default=None,
        description="The last decode step that the recorder saw, counted since boot: those before the load included.",
    )
    seconds_after_ready: float | None = Field(
        default=None,
        description="From when the load could begin, the engine being ready and witnesses calibrated, to that step; "
        "of a crash before that, from the engine's readiness.",
    )
    noticed_after_seconds: float | None = Field(default=None, description="From the fact to its being noticed.")
    evidence: Mapping[str, str] = Field(
        default_factory=dict,
        description="Files by what they hold (log, flight, steps, plan, repro) in the run's folder.",
    )
