"""`report.json` as a model: its schema, in the API's description too, and what is read back of it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from service.engine.crash.crash import Crash
from service.plugin.settings import Allocator
from service.runs.model import EngineInfo, Finding, Measures, Run, RunStatus, Verdict
from service.runs.value import Value
from service.spec.spec import RunSpec

SCHEMA_VERSION = 2
"""Grows when a key is renamed, removed or changes its meaning; new keys may appear without that."""


class UnknownEngine(Value):
    """The engine that was asked for, of a run that ended before it was known."""

    name: str | None = Field(description="As the spec has it; null: the default one.")
    profile: None = None
    sglang_version: None = None
    allocator: Allocator
    arguments: tuple[str, ...] = ()


class Times(Value):
    """When a run took its steps, UTC."""

    created_at: datetime
    started_at: datetime | None
    ready_at: datetime | None
    finished_at: datetime | None


class Report(Value):
    """Everything that a run has shown. Times are ISO 8601, UTC."""

    schema_version: int = Field(alias="schema", description="Version of this schema.")
    lastpage_version: str
    id: str
    status: RunStatus
    detail: str | None = Field(description="More about the status, where there is more to say.")
    verdict: Verdict | None
    reasons: tuple[str, ...] = Field(description="Why the verdict is what it is.")
    measures: Measures
    crashes: tuple[Crash, ...]
    findings: tuple[Finding, ...]
    engine: EngineInfo | UnknownEngine
    load: dict[str, Any] = Field(description="The spec's `load`, without its seed.")
    seed: int | None
    times: Times
    spec: RunSpec = Field(description="What was asked for.")

    @classmethod
    def of(cls, run: Run, lastpage_version: str) -> Report:
        """The report of a run."""
        engine = run.spec.engine
        load = run.spec.load.model_dump(mode="json")
        seed = load.pop("seed")
        return cls(
            schema=SCHEMA_VERSION,
            lastpage_version=lastpage_version,
            id=run.id,
            status=run.status,
            detail=run.detail,
            verdict=run.verdict,
            reasons=run.reasons,
            measures=run.measures,
            crashes=run.crashes,
            findings=run.findings,
            engine=run.engine or UnknownEngine(name=engine.name, allocator=engine.allocator),
            load=load,
            seed=seed,
            times=Times(
                created_at=run.created_at,
                started_at=run.started_at,
                ready_at=run.ready_at,
                finished_at=run.finished_at,
            ),
            spec=run.spec,
        )


class ReportExtract(Value):
    """What is read back of a report, of an older release too, whose spec may be none today."""

    measures: Measures
    crashes: tuple[Crash, ...] = ()
    findings: tuple[Finding, ...] = ()
