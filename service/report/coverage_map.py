"""Which cells of the edge were hit, for people: shares by dimension, and heat maps of need by batch size."""

from __future__ import annotations

import io
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator

from rich import box
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from loadgen.coverage import After, Cell, Coverage, Filler, Relation
from loadgen.coverage.cells import need_bucket_end, power_bucket_end
from service.files import write_atomically
from service.runs.coverage import read_back
from service.runs.folder import COVERAGE_FILE
from service.runs.model import Run

_SVG_WIDTH = 150
# What rich puts into a picture that names other hosts: fonts, and where rich itself comes from.
_FOREIGN = re.compile(r"@font-face\s*\{.*?\}\s*|<!--.*?-->\s*", re.DOTALL)
_UNFORESEEN_SHOWN = 20
_NOT_HIT = (0x6E, 0x1F, 0x1F)
_HALF = (0x9A, 0x67, 0x00)
_ALL = (0x1A, 0x7F, 0x37)
_UNREACHABLE = Text("·", style="dim")

_AFTER = {
    After.DECODE: "a decode step",
    After.PREFILL: "a prefill",
    After.EVICTION: "an eviction",
    After.RETRACTION: "a retraction",
}
_FILLER = {Filler.RUNNING_ROWS: "running rows", Filler.PREFIX_CACHE: "prefix cache"}
_NEAR = {Relation.ONE_OVER: "one page over", Relation.ONE_UNDER: "one page under, but for an eviction"}


def coverage_view(coverage: Coverage) -> Group:
    """The share, its parts by dimension, and the heat maps."""
    return Group(
        _headline(coverage),
        *_near(coverage),
        *_unforeseen(coverage),
        Text(),
        _dimensions(coverage),
        Text(),
        Text("need (down) by batch size (across): tight cells hit of those that can exist", style="bold"),
        _legend(),
        Text(),
        Columns(list(_maps(coverage)), padding=(1, 4)),
    )


def coverage_svg(coverage: Coverage, title: str) -> str:
    """The same as a picture. It refers to no other host: whoever views it needs nothing but the file."""
    console = Console(record=True, width=_SVG_WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(coverage_view(coverage))
    return _FOREIGN.sub("", console.export_svg(title=title))


def write_coverage_map(run: Run) -> None:
    """Write the picture into a run's folder, when the run has covered anything.

    Raises:
        OSError: it cannot be written.
    """
    stored = run.measures.coverage
    if stored is not None and stored.tight:
        title = f"lastpage: cells of the edge hit by {run.spec.load.scenario}, run {run.id}"
        write_atomically(run.folder / COVERAGE_FILE, coverage_svg(read_back(stored), title))


def _headline(coverage: Coverage) -> Text:
    steps = sum(count for cell, count in coverage.hits.items() if cell.relation is Relation.TIGHT)
    hit, reachable = len(coverage.covered), len(coverage.reachable_tight)
    return Text(f"coverage {coverage.share:.1%}: {hit:,} of {reachable:,} tight cells, in {steps:,} steps", "bold")


def _near(coverage: Coverage) -> Iterator[Text]:
    for relation, name in _NEAR.items():
        reachable = sum(cell.relation is relation for cell in coverage.reachable)
        hit = [cell for cell in coverage.hits if cell.relation is relation]
        if reachable or hit:
            known = sum(cell in coverage.reachable for cell in hit)
            steps = sum(coverage.hits[cell] for cell in hit)
            yield Text(f"{name}: {known:,} of {reachable:,} cells, in {steps:,} steps")


def _unforeseen(coverage: Coverage) -> Iterator[Text]:
    if coverage.unforeseen:
        yield Text(f"hit though thought unreachable: {len(coverage.unforeseen):,} cells", style="bold yellow")
    for cell in sorted(coverage.unforeseen)[:_UNFORESEEN_SHOWN]:
        yield Text(f"  {cell} ({coverage.hits[cell]:,} steps)", style="yellow")


def _dimensions(coverage: Coverage) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("dimension", "value"):
        table.add_column(heading)
    for heading in ("hit", "cells", "share", "steps"):
        table.add_column(heading, justify="right")
    tight_steps = Counter({cell: n for cell, n in coverage.hits.items() if cell.relation is Relation.TIGHT})
    for name, value_of in _DIMENSIONS.items():
        reachable = Counter(map(value_of, coverage.reachable_tight))
        hit = Counter(map(value_of, coverage.covered))
        steps: Counter[_Value] = Counter()
        for cell, count in tight_steps.items():
            steps[value_of(cell)] += count
        for number, value in enumerate(sorted(reachable)):
            share = Text(f"{hit[value] / reachable[value]:.0%}", style=_style(hit[value], reachable[value]))
            counts = (f"{hit[value]:,}", f"{reachable[value]:,}", share, f"{steps[value]:,}")
            table.add_row("" if number else name, value[1], *counts)
        table.add_section()
    return table


def _legend() -> Text:
    return Text.assemble(
        ("·", "dim"), " cannot exist   ", (" 0/8 ", _style(0, 8)), " none hit   ", (" 4/8 ", _style(4, 8)), " some   ",
        (" 8/8 ", _style(8, 8)), " all",
    )  # fmt: skip


def _maps(coverage: Coverage) -> Iterator[RenderableType]:
    whole = coverage.reachable_tight
    yield _map(coverage, "all", whole)
    for filler, after in itertools.product(Filler, _AFTER):
        cells = frozenset(cell for cell in whole if cell.filler is filler and cell.after is after)
        if cells:
            yield _map(coverage, f"{_FILLER[filler]}, after {_AFTER[after]}", cells)
    for trailing in sorted({cell.trailing for cell in whole}):
        cells = frozenset(cell for cell in whole if cell.trailing == trailing)
        yield _map(coverage, f"trailing rows: {_range(trailing, power_bucket_end(trailing))}", cells)


def _map(coverage: Coverage, title: str, cells: frozenset[Cell]) -> Table:
    """One heat map, of some of the cells; all have the same rows and columns."""
    reachable = Counter((cell.need, cell.batch_size) for cell in cells)
    hit = Counter((cell.need, cell.batch_size) for cell in cells & coverage.covered)
    batch_sizes = sorted({cell.batch_size for cell in coverage.reachable_tight})
    table = Table(title=title, title_justify="left", title_style="italic", box=None, padding=(0, 1, 0, 0))
    table.add_column("", justify="right", no_wrap=True)
    for batch_size in batch_sizes:
        table.add_column(_range(batch_size, power_bucket_end(batch_size)), justify="right", no_wrap=True)
    for need in sorted({cell.need for cell in coverage.reachable_tight}):
        row: list[RenderableType] = [_range(need, need_bucket_end(need))]
        for at in ((need, batch_size) for batch_size in batch_sizes):
            seen = Text(f"{hit[at]}/{reachable[at]}", style=_style(hit[at], reachable[at])) if reachable[at] else None
            row.append(seen or _UNREACHABLE)
        table.add_row(*row)
    return table


def _style(hit: int, reachable: int) -> Style:
    share = hit / reachable
    start, end, along = (_NOT_HIT, _HALF, 2 * share) if share < 0.5 else (_HALF, _ALL, 2 * share - 1)
    red, green, blue = (round(a + (b - a) * along) for a, b in zip(start, end, strict=True))
    return Style(color="#ffffff", bgcolor=f"#{red:02x}{green:02x}{blue:02x}")


def _range(lowest: int, highest: int) -> str:
    return str(lowest) if lowest == highest else f"{lowest}-{highest}"


_Value = tuple[int, str]
"""A value of a dimension: where it stands among the others, and its name."""

_DIMENSIONS: dict[str, Callable[[Cell], _Value]] = {
    "need": lambda cell: (cell.need, _range(cell.need, need_bucket_end(cell.need))),
    "batch size": lambda cell: (cell.batch_size, _range(cell.batch_size, power_bucket_end(cell.batch_size))),
    "trailing rows": lambda cell: (cell.trailing, _range(cell.trailing, power_bucket_end(cell.trailing))),
    "pool filled by": lambda cell: (list(_FILLER).index(cell.filler), _FILLER[cell.filler]),
    "right after": lambda cell: (list(_AFTER).index(cell.after), _AFTER[cell.after]),
}
