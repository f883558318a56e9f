"""Fixtures of the whole tree."""

from __future__ import annotations

import pytest
from hypothesis import settings

# A busy machine is no fault of the code: tests assert behaviour, not times.
settings.register_profile("lastpage", deadline=None)
settings.load_profile("lastpage")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
