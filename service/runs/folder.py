"""The folder of a run, and the files that the controller itself puts there."""

from __future__ import annotations

import secrets
from datetime import datetime
from pathlib import Path

from service.engine.process.command import DEVICE_LOG_FOLDER, FLIGHT_FILE, LOG_FILE
from service.files import write_atomically
from service.spec.spec import RunSpec
from service.spec.yaml_text import dump_yaml

SPEC_FILE = "spec.yaml"
REPORT_FILE = "report.json"
STEPS_FILE = "steps.jsonl"
PLAN_FILE = "plan.jsonl"
REPRO_FILE = "repro.yaml"
COVERAGE_FILE = "coverage.svg"
OVERLAY_FOLDER = "overlay"
_OTHERS_TOLD = 3

_NAMES = (
    *(REPORT_FILE, SPEC_FILE, LOG_FILE, FLIGHT_FILE, PLAN_FILE, STEPS_FILE, REPRO_FILE, COVERAGE_FILE),
    *(DEVICE_LOG_FOLDER, OVERLAY_FOLDER),
)


def new_run_id(at: datetime) -> str:
    """An id that sorts by time and is not met twice, such as `20261130-031522-3f9a2c`."""
    return f"{at:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def files_of_a_run(folder: Path) -> list[str]:
    """Names of the files and folders of a run that are there; whatever else is there is left out."""
    return [name for name in _NAMES if (folder / name).exists()]


def not_empty(folder: Path) -> str:
    """Why a run cannot have a folder as its own: what is there. Empty when nothing is, or the folder cannot be read."""
    if found := files_of_a_run(folder):
        return f"{', '.join(found)} of an earlier run there; choose another folder, or remove it"
    try:
        others = sorted(path.name for path in folder.iterdir())
    except OSError:  # it is not there yet; if it cannot be had at all, that is told when it is made
        return ""
    if not others:
        return ""
    more = ", ..." if len(others) > _OTHERS_TOLD else ""
    return f"it is not empty ({', '.join(others[:_OTHERS_TOLD])}{more}); allowed: a new folder, or an empty one"


def prepare_folder(folder: Path, spec: RunSpec) -> None:
    """Make a run's folder, with its spec. An earlier report there would speak for this run if it dies: it is removed.

    Raises:
        OSError: the folder cannot be made or written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / REPORT_FILE).unlink(missing_ok=True)
    write_spec(folder, spec)


def write_spec(folder: Path, spec: RunSpec) -> None:
    """Write a run's spec into its folder.

    Raises:
        OSError: it cannot be written.
    """
    write_atomically(folder / SPEC_FILE, dump_yaml(spec))
