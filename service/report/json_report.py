"""`report.json`: everything a run has shown, for programs and for the record."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from service.files import read_text, write_atomically
from service.report.report import Report
from service.runs.folder import REPORT_FILE
from service.runs.model import Run


def build_report(run: Run) -> dict[str, Any]:
    """The report of a run, ready for JSON; `Report` is its schema."""
    return Report.of(run, lastpage_version()).model_dump(mode="json", by_alias=True)


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
