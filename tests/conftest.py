"""Fixtures of the whole tree."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import settings

# A busy machine is no fault of the code: tests assert behaviour, not times. The examples are the same each time, so
# that a change is judged by what it changed; EXPLORE=1 draws others.
settings.register_profile("lastpage", deadline=None, derandomize="EXPLORE" not in os.environ)
settings.load_profile("lastpage")


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": True}
