"""Flight recordings made by a test, as a scheduler process would write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from service.plugin.recorder import FlightRecorder


def record(path: Path, **changes: Any) -> FlightRecorder:
    given: dict[str, Any] = {"page_size": 128, "pool_pages": 32, "sglang_version": "0.5.23", "allocator": "installed"}
    return FlightRecorder(path, **{**given, "capacity": 4096, **changes})
