"""Engines: what is there to run."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from service.api.dependencies import ControllerDependency
from service.engine.installation import Engine
from service.engine.registry import EngineRegistry

router = APIRouter(prefix="/v1/engines", tags=["engines"])


class EngineList(BaseModel):
    """Engines, by name."""

    engines: list[Engine]


@router.get("")
def list_engines(controller: ControllerDependency) -> EngineList:
    """Every registered engine."""
    return EngineList(engines=EngineRegistry(controller.home).list())
