"""Claims about what is shown while a run runs."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from rich.console import Console

from service.cli.console import panel, progress_line, watch
from service.engine.crash.crash import Crash
from service.report.table import describe
from service.runs.events import EventType, RunEvent
from service.runs.model import Finding, Progress, Run, RunStatus
from service.spec.spec import RunSpec
from tests.fake_executor import AT_THE_EDGE, CRASH, ENGINE, FINDING, WAIVED
from tests.monitoring.test_metrics import NOW, Feed

pytestmark = pytest.mark.anyio

RUN = Run(id="r", spec=RunSpec(), folder=Path("/nowhere"), created_at=NOW, engine=ENGINE, status=RunStatus.RUNNING)
PROGRESS = Progress(
    status=RunStatus.RUNNING,
    elapsed_seconds=12,
    total_seconds=60,
    pool_pages=32,
    free_pages=1,
    measures=AT_THE_EDGE,
)


async def events() -> AsyncIterator[RunEvent]:
    told: list[tuple[EventType, Run, Progress | Crash | Finding | None]] = [
        (EventType.STATUS, RUN.model_copy(update={"status": RunStatus.LAUNCHING, "engine": None}), None),
        (EventType.STATUS, RUN, None),
        (EventType.STATUS, RUN, None),
        *((EventType.PROGRESS, RUN, PROGRESS) for _ in range(20)),
        (EventType.FINDING, RUN.model_copy(update={"findings": (FINDING,)}), FINDING),
        (EventType.CRASH, RUN.model_copy(update={"crashes": (CRASH,)}), CRASH),
        (EventType.FINISHED, RUN.model_copy(update={"status": RunStatus.FINISHED}), None),
    ]
    for number, (type, run, detail) in enumerate(told, start=1):
        yield RunEvent(number, type, NOW, run, detail)


async def test_without_a_terminal_there_are_plain_lines_and_not_too_many() -> None:
    stream = io.StringIO()
    run = await watch(Console(file=stream, width=40), events())
    assert run.status is RunStatus.FINISHED
    lines = stream.getvalue().splitlines()
    assert "\x1b" not in stream.getvalue()
    assert lines[0].startswith("launching the engine: tight on the default engine")
    assert lines[1].startswith("under load: tight on fake (SGLang 0.5.23, rehearsal)")
    assert lines[2] == progress_line(PROGRESS)
    assert lines[3].startswith("finding  wrong_output at 00:00:00 UTC: two witnesses of one prompt disagree")
    assert lines[4].startswith("crash    oob_index")
    assert CRASH.reason not in stream.getvalue(), "the whole of it comes once, with the result"


async def test_a_terminal_gets_a_panel() -> None:
    stream = io.StringIO()
    run = await watch(Console(file=stream, force_terminal=True, width=100), events())
    assert run.status is RunStatus.FINISHED
    assert "pool 31/32 pages used, 1 free" in stream.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
async def test_a_boot_shows_for_how_long_it_has_lasted_though_nothing_happens(
    terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.cli.console._TICK_SECONDS", 0.01)
    monkeypatch.setattr("service.cli.console.FIRST_LAUNCHING_LINE_SECONDS", 0.02)

    async def booting() -> AsyncIterator[RunEvent]:
        launching = RUN.model_copy(update={"status": RunStatus.LAUNCHING})
        yield RunEvent(1, EventType.STATUS, NOW, launching)
        await anyio.sleep(0.5)
        yield RunEvent(2, EventType.FINISHED, NOW, RUN.model_copy(update={"status": RunStatus.FINISHED}))

    stream = io.StringIO()
    await watch(Console(file=stream, force_terminal=terminal, width=200), booting())
    assert "launching the engine, 0 s (a boot takes up to a minute or two; engine.log in /nowhere)" in stream.getvalue()


async def test_a_boot_that_takes_long_is_told_now_and_then_and_how_long_it_may_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("service.cli.console._TICK_SECONDS", 0.01)
    monkeypatch.setattr("service.cli.console.FIRST_LAUNCHING_LINE_SECONDS", 0.02)
    monkeypatch.setattr("service.cli.console.USUAL_LAUNCH_SECONDS", 0.0)

    async def booting() -> AsyncIterator[RunEvent]:
        yield RunEvent(1, EventType.STATUS, NOW, RUN.model_copy(update={"status": RunStatus.LAUNCHING}))
        await anyio.sleep(0.6)
        yield RunEvent(2, EventType.FINISHED, NOW, RUN.model_copy(update={"status": RunStatus.FINISHED}))

    stream = io.StringIO()
    await watch(Console(file=stream, width=200), booting())
    told = [line for line in stream.getvalue().splitlines() if line.startswith("launching the engine, ")]
    assert 2 <= len(told) <= 5, "after 0.02, 0.06, 0.14, 0.3 and 0.62 s"
    assert "the machine may be busy; it is given 300 s" in told[0]


def test_a_line_tells_pool_steps_crashes_and_time_left() -> None:
    line = progress_line(PROGRESS)
    for part in ("12s under load, 48s left", "pool 31/32 pages used, 1 free", "critical 900 (90.0%)", "crashes 0"):
        assert part in line


def test_a_panel_tells_findings_and_why_some_are_waived() -> None:
    stream = io.StringIO()
    measures = AT_THE_EDGE.model_copy(update={"findings": 2, "waived_findings": 5})
    run = RUN.model_copy(update={"findings": (FINDING, WAIVED)})
    Console(file=stream, width=120).print(panel(run, PROGRESS.model_copy(update={"measures": measures})))
    for part in (
        "2, 5 waived",
        "finding  wrong_output at 00:00:00 UTC: two witnesses of one prompt disagree",
        "2 times, with prompts of 60 to 125 tokens; the first:",
        "differ at token 3",
        "finding  starved (waived) at",
        "waived: known of this release (https://example.org/1)",
    ):
        assert part in stream.getvalue()


def test_markup_in_names_is_shown_as_it_is() -> None:
    stream = io.StringIO()
    spec = RunSpec.model_validate({"load": {"scenario": "[bold]x[/nonsense]"}})
    run = RUN.model_copy(update={"spec": spec, "detail": "[/red]"})
    Console(file=stream, width=200).print(panel(run, PROGRESS))
    assert "[bold]x[/nonsense]" in stream.getvalue()
    assert "[/red]" in stream.getvalue()


def test_what_runs_is_told_whole_on_a_narrow_terminal() -> None:
    stream = io.StringIO()
    Console(file=stream, width=60).print(panel(RUN, PROGRESS))
    words = stream.getvalue().replace("│", " ").split()
    assert " ".join(describe(RUN).split()) in " ".join(words)


def test_a_panel_before_any_progress_tells_the_status() -> None:
    stream = io.StringIO()
    Console(file=stream, width=100).print(panel(RUN.model_copy(update={"status": RunStatus.LAUNCHING}), None))
    assert "launching the engine" in stream.getvalue()


def test_coverage_is_shown_while_the_run_goes_on() -> None:
    assert "coverage" not in progress_line(PROGRESS)
    coverage = Feed.coverage()
    progress = PROGRESS.model_copy(update={"measures": AT_THE_EDGE.model_copy(update={"coverage": coverage})})
    assert f"coverage {coverage.share:.1%}" in progress_line(progress)
    shown = io.StringIO()
    Console(file=shown, width=200).print(panel(RUN, progress))
    assert f"{coverage.hit} of {coverage.reachable} tight cells" in shown.getvalue()
    assert "1 more, thought unreachable" in shown.getvalue()
