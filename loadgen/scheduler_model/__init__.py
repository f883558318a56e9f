"""A model of SGLang's scheduler (pure): which decode steps follow from which requests, step for step.

Planners try a load on it before they send it, and tests hold planners against it. Its own tests replay recordings of
real servers on it.
"""

from __future__ import annotations

from .admission import NotServable, Request, check_servable
from .page_pool import OutOfPages, PagePool
from .scheduler import Scheduler
from .values import ModelStep, Release

__all__ = ["ModelStep", "NotServable", "OutOfPages", "PagePool", "Release", "Request", "Scheduler", "check_servable"]
