"""A recording that is being written, and its reader."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.execution.recording import Recording
from service.plugin.recorder import FlightRecorder

from .recordings import record


@pytest.fixture
def writer(tmp_path: Path) -> FlightRecorder:
    return record(tmp_path / "flight.bin")


@pytest.fixture
def recording(writer: FlightRecorder, tmp_path: Path) -> Recording:
    return Recording(tmp_path / "flight.bin")
