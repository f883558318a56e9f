"""A model of SGLang's scheduler (pure): which decode steps follow from which requests, step for step.

Planners try a load on it before they send it, and tests hold planners against it. Its own tests replay recordings of
real servers on it.
"""

from __future__ import annotations

from ..limits import NotServable, check_servable
from ..steps import ModelStep
from .page_pool import OutOfPages, PagePool
from .request import Request
from .scheduler import Scheduler

__all__ = ["ModelStep", "NotServable", "OutOfPages", "PagePool", "Request", "Scheduler", "check_servable"]
