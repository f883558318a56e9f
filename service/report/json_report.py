"""`report.json`: everything a run has shown, for programs and for the record."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from service.files import read_text, write_atomically
from service.runs.folder import REPORT_FILE
from service.runs.model import Run

SCHEMA_VERSION = 2
"""Grows when a key is renamed, removed or changes its meaning; new keys may appear without that."""


def build_report(run: Run) -> dict[str, Any]:
    """The report of a run, ready for JSON. Times are ISO 8601, UTC."""
    values = run.model_dump(mode="json")
    spec = values["spec"]
    engine = values["engine"] or {
        "name": spec["engine"]["name"],
        "profile": None,
        "sglang_version": None,
        "allocator": spec["engine"]["allocator"],
        "arguments": [],
    }
    return {
        "schema": SCHEMA_VERSION,
        "lastpage_version": lastpage_version(),
        "id": run.id,
        "status": values["status"],
        "detail": values["detail"],
        "verdict": values["verdict"],
        "reasons": values["reasons"],
        "measures": values["measures"],
        "crashes": values["crashes"],
        "findings": values["findings"],
        "engine": engine,
        "load": {key: value for key, value in spec["load"].items() if key != "seed"},
        "seed": spec["load"]["seed"],
        "times": {key: values[key] for key in ("created_at", "started_at", "ready_at", "finished_at")},
        "spec": spec,
    }


def write_report(run: Run, spare: Path | None = None) -> None:
    """Write `report.json` into the run's folder, atomically.

    Args:
        spare: a folder below which it is written, in one of the run's id, when the run's own is full or gone.

    Raises:
        OSError: it cannot be written there. The message says where it is instead, if anywhere.
    """
    text = json.dumps(build_report(run), indent=2, ensure_ascii=False) + "\n"
    try:
        write_atomically(run.folder / REPORT_FILE, text)
    except OSError as error:
        if spare is None or spare / run.id == run.folder:
            raise
        elsewhere = spare / run.id / REPORT_FILE
        elsewhere.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(elsewhere, text)
        raise OSError(f"{error}; it is in {elsewhere} instead") from error


def read_report(file: Path) -> dict[str, Any]:
    """A report that `write_report` wrote.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no report.
    """
    try:
        report = json.loads(read_text(file))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(report, dict) or "measures" not in report:
        raise ValueError("it has no measures")
    return report


def lastpage_version() -> str:
    """The installed version of lastpage."""
    try:
        return version("lastpage")
    except PackageNotFoundError:
        return "unknown"
