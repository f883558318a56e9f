"""Launches of the installed releases, for the tests of the real layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from service.engine.overlay import write_overlay
from service.engine.process.command import LaunchPlan, plan_launch
from service.engine.process.ports import free_port
from service.engine.registry import EngineRegistry
from service.engine.tiny_model import write_tiny_model
from service.home import Home
from service.plugin.settings import Profile

RELEASES = ("0.5.23", "0.5.18")


def python_of(release: str) -> Path:
    """The interpreter of an installed release."""
    return EngineRegistry(Home.default()).get(release).python


def rehearsal_plan(folder: Path, release: str = "0.5.23", **changes: Any) -> LaunchPlan:
    """A launch of the rehearsal on a pool of 32 pages."""
    given: dict[str, Any] = {
        "python": python_of(release),
        "profile": Profile.REHEARSAL,
        "model": write_tiny_model(folder / "models", Profile.REHEARSAL),
        "tiny_model": True,
        "folder": folder,
        "overlay": write_overlay(folder / "overlay", Profile.REHEARSAL),
        "port": free_port(),
        "seed": 1,
        "pool_pages": 32,
        "scenario_arguments": ["--disable-radix-cache", "--schedule-conservativeness", "0"],
    }
    return plan_launch(**{**given, **changes})
