"""The controller put together: what `lastpage soak` and `lastpage serve` both stand on."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from service.home import Home
from service.monitoring.metrics import ControllerMetrics
from service.report.json_report import write_report
from service.runs.device_turn import DeviceTurn
from service.runs.executor import Executor
from service.runs.manager import RunManager
from service.runs.model import Run
from service.store.memory import MemoryRunStore

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Controller:
    """The parts that requests and commands use."""

    home: Home
    manager: RunManager
    metrics: ControllerMetrics


def build_controller(home: Home | None = None, executor: Executor | None = None) -> Controller:
    """A controller that keeps its files below `home`, and carries runs out on real engines unless told otherwise."""
    home = home or Home.default()
    metrics = ControllerMetrics()
    turn = DeviceTurn(executor or _supervisor(home), home.device_lock)
    manager = RunManager(MemoryRunStore(), turn, home.runs, partial(_write_files, spare=home.runs), [metrics.observe])
    return Controller(home, manager, metrics)


def _write_files(run: Run, spare: Path) -> None:
    from service.report.coverage_map import write_coverage_map

    write_report(run, spare)
    try:
        write_coverage_map(run)
    except Exception:
        # All of it is in the report, from which `lastpage coverage` draws it.
        _logger.exception("run %s: the coverage map could not be written", run.id)


def _supervisor(home: Home) -> Executor:
    from service.execution.supervisor import Supervisor

    return Supervisor(home)
