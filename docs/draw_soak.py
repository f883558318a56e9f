"""Draws the picture in the README: a real soak half way through, and its end. `python docs/draw_soak.py [ENGINE]`."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

from service import event_loop
from service.cli.console import panel
from service.controller import build_controller
from service.report.table import print_result
from service.runs.model import Progress, Run
from service.spec.parsing import parse_spec

PICTURE = Path(__file__).parent / "soak.svg"


async def soak(engine: str | None) -> tuple[Run, Run, Progress]:
    """Carry out the default soak; the run half way through, with its progress, and the run at its end."""
    spec = parse_spec({"engine": {"name": engine}, "load": {"seed": 1}})
    half_way: tuple[Run, Progress] | None = None
    async with build_controller().manager.started() as manager:
        run = await manager.submit(spec)
        async for event in manager.events(run.id):
            run = event.run
            if isinstance(event.detail, Progress) and event.detail.elapsed_seconds <= spec.load.duration / 2:
                half_way = run, event.detail
    if half_way is None:
        raise SystemExit(f"the run ended before it was under load: {run.detail}")
    return run, *half_way


def draw(ended: Run, half_way: Run, progress: Progress) -> None:
    """Write the picture."""
    console = Console(record=True, width=132, force_terminal=True)
    console.print("$ lastpage soak", highlight=False)
    console.print(panel(half_way, progress))
    # Where the run's files are says nothing to a reader of the picture.
    print_result(console, ended.model_copy(update={"folder": Path("~/.cache/lastpage/runs") / ended.id}))
    console.save_svg(str(PICTURE), title="lastpage")


if __name__ == "__main__":
    draw(*event_loop.run(soak, sys.argv[1] if len(sys.argv) > 1 else None))
