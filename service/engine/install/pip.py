"""Runs pip of an engine's environment, by argument list, with its output in a log."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from service.engine.install.environment import Report
from service.errors import InstallFailed

PROGRESS_SECONDS = 10.0
TAIL_LINES = 15
LINE_LENGTH = 160

_OPTIONS = ("--disable-pip-version-check", "--no-input", "--progress-bar", "off")


@dataclass(frozen=True)
class Candidate:
    """A distribution that pip chose for a requirement, and what that one requires (PEP 508 strings)."""

    name: str
    version: str
    requires: tuple[str, ...] = ()


class Pip:
    """pip in one environment. Which index it asks is the user's own pip configuration.

    Args:
        python: the environment's interpreter.
        log: file that pip's output is added to.
        report: is told now and then how far pip is.
    """

    def __init__(self, python: Path, log: Path, report: Report) -> None:
        self._python = python
        self._log = log
        self._report = report
        self.markers: dict[str, str] = {}

    def install(self, *arguments: str) -> None:
        """Run `pip install`.

        Raises:
            InstallFailed: pip failed.
        """
        self._pip("install", *_OPTIONS, *arguments)

    def choose(self, requirements: Sequence[Requirement]) -> list[Candidate]:
        """What pip would install for requirements, each taken by itself. Also learns the environment's `markers`.

        Raises:
            InstallFailed: pip found no distribution for one.
        """
        with tempfile.TemporaryDirectory(prefix="lastpage-pip-") as folder:
            path = Path(folder) / "report.json"
            dry_run = ("--dry-run", "--no-deps", "--ignore-installed", "--report", str(path))
            self.install(*dry_run, *map(str, requirements))
            found: dict[str, Any] = json.loads(path.read_text())
        self.markers = found["environment"]
        return [
            Candidate(entry["name"], entry["version"], tuple(entry.get("requires_dist", ())))
            for entry in (item["metadata"] for item in found["install"])
        ]

    def _pip(self, *arguments: str) -> None:
        run_logged([str(self._python), "-I", "-m", "pip", *arguments], self._log, self._report)


def run_logged(command: Sequence[str], log: Path, report: Report) -> None:
    """Run a command to its end, its output added to `log`, its newest line reported every few seconds.

    Raises:
        InstallFailed: it failed; the message begins with why, and ends with where the log is.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        output.write(f"\n$ {' '.join(command)}\n".encode())
        output.flush()
        begin = output.tell()
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT) as process:
            try:
                code = _wait(process, lambda: _last_lines(log, begin, 1), report)
            except BaseException:
                process.kill()
                raise
    if code != 0:
        raise InstallFailed(
            f"{_why(log, begin)}\n{Path(command[0]).name} ended with code {code}; its command and all it said: {log}"
        )


def _why(log: Path, begin: int) -> str:
    """The last that a command called an error, else its last line."""
    lines = _last_lines(log, begin, TAIL_LINES)
    errors = [line for line in lines if line.lstrip().lower().startswith("error")]
    return (errors or lines or ["it said nothing"])[-1].strip()


def _wait(process: subprocess.Popen[bytes], newest: Callable[[], list[str]], report: Report) -> int:
    started = time.monotonic()
    said = ""
    while True:
        try:
            return process.wait(PROGRESS_SECONDS)
        except subprocess.TimeoutExpired:
            line = " ".join(newest()).strip()
            # pip is silent for minutes while it unpacks; its last line, again and again, would look like a fault.
            report(f"{time.monotonic() - started:4.0f} s  {line if line != said else '... still at it'}")
            said = line


def _last_lines(log: Path, begin: int, count: int) -> list[str]:
    """The last lines that hold something, from byte `begin` of the log on; long ones without their middle."""
    with log.open("rb") as file:
        file.seek(max(begin, file.seek(0, 2) - 65_536))
        lines = file.read().decode(errors="replace").splitlines()
    return [_shortened(line) for line in lines if line.strip()][-count:]


def _shortened(line: str) -> str:
    return line if len(line) <= LINE_LENGTH else f"{line[: LINE_LENGTH // 2]} ... {line[-LINE_LENGTH // 2 :]}"
