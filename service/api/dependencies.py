"""What endpoints are given."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from service.controller import Controller
from service.runs.manager import RunManager


def _controller(request: Request) -> Controller:
    controller: Controller = request.app.state.controller
    return controller


def _manager(request: Request) -> RunManager:
    return _controller(request).manager


ControllerDependency = Annotated[Controller, Depends(_controller)]
ManagerDependency = Annotated[RunManager, Depends(_manager)]
