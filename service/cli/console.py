"""What a person sees while a run runs: a panel on a terminal, plain lines anywhere else."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path

import anyio
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from service.engine.crash.crash import Crash
from service.engine.process.command import LOG_FILE
from service.engine.process.readiness import DEFAULT_DEADLINE_SECONDS
from service.report.table import coverage_text, crash_line, crash_text, describe, finding_line, finding_text
from service.runs.events import EventType, RunEvent
from service.runs.model import Finding, Measures, Progress, Run, RunStatus
from service.spec.duration import format_duration

LINE_EVERY_SECONDS = 5.0
FIRST_LAUNCHING_LINE_SECONDS = 20.0  # each of the next comes after twice the time
USUAL_LAUNCH_SECONDS = 120.0
_TICK_SECONDS = 1.0

_STATUS_TEXT = {
    RunStatus.CREATED: "waiting",
    RunStatus.LAUNCHING: "launching the engine",
    RunStatus.RUNNING: "under load",
    RunStatus.DRAINING: "draining",
}


class LastingConsole(Console):
    """A console whose reader may leave, as in `lastpage soak | head`: a run goes on without it, to its report."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


async def watch(console: Console, events: AsyncIterator[RunEvent]) -> Run:
    """Show a run until it ends, and give it back."""
    view = _Panel(console) if console.is_terminal else _Lines(console)
    with view.live or nullcontext():
        async with anyio.create_task_group() as group:
            group.start_soon(_tick, view)
            async for event in events:
                view.show(event)
                run = event.run
            group.cancel_scope.cancel()
    return run


async def _tick(view: _Panel | _Lines) -> None:
    while True:
        await anyio.sleep(_TICK_SECONDS)
        view.tick()


class _Lines:
    """A line for each change of status and each crash, and one every few seconds."""

    live: Live | None = None

    def __init__(self, console: Console) -> None:
        self._console = console
        self._said = ""
        self._next_line = 0.0
        self._next_launching_line = 0.0
        self._launching_line_after = FIRST_LAUNCHING_LINE_SECONDS
        self._launch = _BootTime()

    def show(self, event: RunEvent) -> None:
        if self._launch.begins_with(event.run):
            self._launching_line_after = FIRST_LAUNCHING_LINE_SECONDS
            self._next_launching_line = time.monotonic() + self._launching_line_after
        if isinstance(event.detail, Crash):
            self._console.print(crash_line(event.detail), soft_wrap=True)
        elif isinstance(event.detail, Finding):
            self._console.print(finding_line(event.detail), soft_wrap=True)
        elif isinstance(event.detail, Progress):
            if time.monotonic() >= self._next_line:
                self._next_line = time.monotonic() + LINE_EVERY_SECONDS
                self._console.print(Text(progress_line(event.detail)), soft_wrap=True)
        elif event.type is EventType.STATUS and (said := status_line(event.run)) != self._said:
            self._said = said
            self._console.print(Text(said), soft_wrap=True)

    def tick(self) -> None:
        """A line now and then while the engine boots, which looks like a hang otherwise."""
        if (text := self._launch.text()) and time.monotonic() >= self._next_launching_line:
            self._next_launching_line = time.monotonic() + self._launching_line_after
            self._launching_line_after *= 2
            self._console.print(Text(text), soft_wrap=True)


class _Panel:
    """A panel that is drawn again with each event, and each second while the engine boots."""

    def __init__(self, console: Console) -> None:
        self._run: Run | None = None
        self._progress: Progress | None = None
        self._launch = _BootTime()
        self.live: Live | None = Live(console=console, refresh_per_second=4, transient=True)

    def show(self, event: RunEvent) -> None:
        self._run = event.run
        self._launch.begins_with(event.run)
        if isinstance(event.detail, Progress):
            self._progress = event.detail
        self.tick()

    def tick(self) -> None:
        if self.live is not None and self._run is not None:
            self.live.update(panel(self._run, self._progress, self._launch.text()))


class _BootTime:
    """For how long the engine has been booting."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._since: float | None = None

    def begins_with(self, run: Run) -> bool:
        """Take note of a run's status; True when its engine begins to boot."""
        booting, known = run.status is RunStatus.LAUNCHING, self._since is not None
        if booting != known:
            self._since = time.monotonic() if booting else None
        self._folder = run.folder
        return booting and not known

    def text(self) -> str:
        """A sentence for whoever waits; empty when the engine is not booting."""
        if self._since is None:
            return ""
        seconds = time.monotonic() - self._since
        said = "a boot takes up to a minute or two"
        if seconds > USUAL_LAUNCH_SECONDS:
            said = f"longer than usual: the machine may be busy; it is given {DEFAULT_DEADLINE_SECONDS:.0f} s"
        return f"launching the engine, {seconds:.0f} s ({said}; {LOG_FILE} in {self._folder})"


def status_line(run: Run) -> str:
    """The run's status in one line, such as `launching the engine: tight on 0.5.23 ...`."""
    text = f"{_STATUS_TEXT.get(run.status, run.status.value)}: {describe(run)}"
    return f"{text} ({run.detail})" if run.detail else text


def progress_line(progress: Progress) -> str:
    """How the run stands, in one line."""
    return " | ".join((_time_text(progress), _pool_text(progress), _steps_text(progress.measures))) + (
        f"{_coverage_text(progress.measures)} | crashes {progress.measures.crashes:,} | "
        f"findings {_findings_text(progress.measures)} | requests {_requests_text(progress.measures)}"
    )


def panel(run: Run, progress: Progress | None, launching: str = "") -> Panel:
    """How the run stands, in a panel.

    Args:
        launching: shown in place of the status while the engine boots.
    """
    heading = Text(describe(run), style="bold")  # wraps where a title would be cut
    if progress is None:
        return _framed(heading, Text(launching or _status_text(run)))
    measures = progress.measures
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column()
    used = progress.pool_pages - (progress.free_pages or 0)
    grid.add_row("status", Text(_status_text(run)))
    grid.add_row("time", _bar(progress.elapsed_seconds, progress.total_seconds, _time_text(progress)))
    grid.add_row("pool", _bar(used, progress.pool_pages, _pool_text(progress)))
    grid.add_row("decode steps", f"{measures.decode_steps:,}")
    grid.add_row("crossing", _count(measures.crossing_steps, measures.crossing_share))
    grid.add_row("tight", _count(measures.tight_steps, measures.tight_share))
    grid.add_row("critical", Text(_count(measures.critical_steps, measures.critical_share), style="bold cyan"))
    if measures.coverage is not None:
        grid.add_row("coverage", f"{measures.coverage.share:.1%}, {coverage_text(measures.coverage)}")
    grid.add_row("requests", Text(_requests_text(measures)))
    grid.add_row("crashes", Text(f"{measures.crashes:,}", style="bold red" if measures.crashes else "green"))
    found = Text(_findings_text(measures), style="bold red" if measures.findings else "green")
    grid.add_row("findings", found)
    texts = (*map(crash_text, run.crashes), *map(finding_text, run.findings))
    return _framed(heading, grid, *texts)


def _framed(*contents: RenderableType) -> Panel:
    return Panel(Group(*contents), title="lastpage", title_align="left")


def _status_text(run: Run) -> str:
    text = _STATUS_TEXT.get(run.status, run.status.value)
    return f"{text}: {run.detail}" if run.detail else text


def _bar(done: float, total: float, text: str) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    grid.add_row(ProgressBar(total=max(total, 1e-9), completed=min(done, total), width=30), Text(text))
    return grid


def _time_text(progress: Progress) -> str:
    left = max(0.0, progress.total_seconds - progress.elapsed_seconds)
    return f"{format_duration(progress.elapsed_seconds)} under load, {format_duration(left)} left"


def _pool_text(progress: Progress) -> str:
    if progress.free_pages is None:
        return f"pool of {progress.pool_pages:,} pages"
    used = progress.pool_pages - progress.free_pages
    return f"pool {used:,}/{progress.pool_pages:,} pages used, {progress.free_pages:,} free"


def _steps_text(measures: Measures) -> str:
    return (
        f"decode steps {measures.decode_steps:,} | crossing {measures.crossing_steps:,} | "
        f"tight {measures.tight_steps:,} | critical {measures.critical_steps:,} ({measures.critical_share:.1%})"
    )


def _coverage_text(measures: Measures) -> str:
    return f" | coverage {measures.coverage.share:.1%}" if measures.coverage is not None else ""


def _requests_text(measures: Measures) -> str:
    return ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(measures.requests.items())) or "none yet"


def _findings_text(measures: Measures) -> str:
    waived = f", {measures.waived_findings:,} waived" if measures.waived_findings else ""
    return f"{measures.findings:,}{waived}"


def _count(steps: int, share: float) -> str:
    return f"{steps:,} ({share:.1%})"
