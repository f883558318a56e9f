"""`lastpage soak` as a person runs it: a command with an exit code, a terminal's output and a folder."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.plugin.flight import NotAFlightFile
from service.plugin.flight_reader import FlightReader
from tests.engine.process.launches import wait_for

LASTPAGE = (sys.executable, "-m", "service.cli.main")
ROOT = Path(__file__).resolve().parents[2]
_BOOT_SECONDS = 180.0
# By then readiness has done its own few decode steps, and the rest is load.
_TIGHT_STEPS_UNDER_LOAD = 20


@dataclass(frozen=True)
class Soak:
    """A soak that is over.

    Attributes:
        folder: what `--out` named.
        output: what it printed, stderr included.
        ended_ns: CLOCK_MONOTONIC, nanoseconds, when the prompt was back: the recorder's clock.
    """

    folder: Path
    exit_code: int
    output: str
    ended_ns: int

    @property
    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads((self.folder / "report.json").read_text())
        return report

    @property
    def crash(self) -> dict[str, Any]:
        """The one crash."""
        (crash,) = self.report["crashes"]
        return dict(crash)

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The decode steps that were kept of a crash, oldest first."""
        return [json.loads(line) for line in (self.folder / "steps.jsonl").read_text().splitlines()]


class RunningSoak:
    """A soak that runs."""

    def __init__(self, folder: Path, process: subprocess.Popen[str]) -> None:
        self.folder = folder
        self.process = process

    def until_under_load(self) -> int:
        """Wait until the load has reached the edge, which the calibration before it does not; the scheduler's pid."""
        assert wait_for(lambda: self._tight_steps() > _TIGHT_STEPS_UNDER_LOAD, _BOOT_SECONDS), self._told()
        reader = FlightReader(self.folder / "flight.bin")
        pid = reader.identity.pid
        reader.close()
        return pid

    def end(self, seconds: float) -> Soak:
        """Wait until it is over."""
        try:
            output, _ = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not over within {seconds} s; {self._told()}") from None
        return Soak(self.folder, self.process.returncode, output, time.monotonic_ns())

    def _tight_steps(self) -> int:
        assert self.process.poll() is None, self._told()
        try:
            reader = FlightReader(self.folder / "flight.bin")
        except (FileNotFoundError, NotAFlightFile):
            return 0
        steps = reader.totals().tight_steps
        reader.close()
        return steps

    def _told(self) -> str:
        log = self.folder / "engine.log"
        return f"the end of its engine's log: {log.read_text()[-4000:] if log.exists() else 'there is none'}"


@contextlib.contextmanager
def soaking(folder: Path, *arguments: str) -> Iterator[RunningSoak]:
    """A soak that writes to `folder`, and does not outlive the block."""
    process = subprocess.Popen(
        [*LASTPAGE, "soak", "--out", str(folder), *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield RunningSoak(folder, process)
    finally:
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=30)
        # The engine's warden sees that its controller is gone, and cleans up.
        process.kill()
        process.communicate()


def soak(folder: Path, *arguments: str, seconds: float = 300.0) -> Soak:
    """Carry a soak out to its end."""
    with soaking(folder, *arguments) as running:
        return running.end(seconds)
