"""Scenarios: the ways of making load."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from loadgen.scenarios import SCENARIOS

router = APIRouter(prefix="/v1/scenarios", tags=["scenarios"])


class ScenarioView(BaseModel):
    """A scenario."""

    name: str
    summary: str
    options: dict[str, Any] = Field(description="JSON schema of `load.options`.")


class ScenarioList(BaseModel):
    """Scenarios, by name."""

    scenarios: list[ScenarioView]


@router.get("")
async def list_scenarios() -> ScenarioList:
    """Every scenario, with the options that it takes."""
    return ScenarioList(
        scenarios=[
            ScenarioView(name=name, summary=scenario.summary, options=scenario.Options.model_json_schema())
            for name, scenario in sorted(SCENARIOS.items())
        ]
    )
