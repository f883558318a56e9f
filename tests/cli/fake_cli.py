"""`lastpage` without an engine: `python -m tests.cli.fake_cli HOLD_AT ARGS...`, where HOLD_AT is a status or `none`."""

from __future__ import annotations

import sys

import service.controller
from service.cli.main import main
from service.runs.model import RunStatus
from tests.fake_executor import FakeExecutor

if __name__ == "__main__":
    hold_at = sys.argv.pop(1)
    executor = FakeExecutor(hold_at=None if hold_at == "none" else RunStatus(hold_at))
    service.controller._supervisor = lambda _: executor  # type: ignore[attr-defined]
    main()
