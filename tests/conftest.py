"""Fixtures of the whole tree."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# A busy machine is no fault of the code: tests assert behaviour, not times. In CI the examples are the same each time.
settings.register_profile("lastpage", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("lastpage")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
