"""A flight recording, for people: who wrote it, its totals, its last steps."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from service.plugin.flight import STEP_FIELDS, AllocationOutcome, DecodeStep, Identity, Totals
from service.plugin.flight_reader import FlightReader
from service.plugin.measures import RECORDED, Measure
from service.report.json_report import read_report
from service.report.report import ReportExtract
from service.runs.folder import REPORT_FILE

_OUTCOMES = {
    AllocationOutcome.ENTERED: "no return",
    AllocationOutcome.RETURNED: "",
    AllocationOutcome.SHORT: "short",
    AllocationOutcome.RAISED: "raised",
}


class LoadSteps(NamedTuple):
    """Which of a recording's steps were made under load; steps count from 1, since boot."""

    before: int
    under_load: int


def load_beside(recording: Path) -> LoadSteps | None:
    """What the report beside a recording says of it; None when there is none, or none that says it."""
    try:
        measures = ReportExtract.model_validate(read_report(recording.parent / REPORT_FILE)).measures
    except (OSError, ValueError):
        return None
    if not {"steps_before_load", "decode_steps"} <= measures.model_fields_set:
        return None  # an older release wrote it
    return LoadSteps(measures.steps_before_load, measures.decode_steps)


def print_flight(console: Console, reader: FlightReader, last: int, load: LoadSteps | None = None) -> None:
    """Print the last steps of a recording, oldest first, and the totals under them.

    Args:
        load: the last steps under load are printed instead, where there were any.
    """
    totals = reader.totals()
    end = load.before + load.under_load if load is not None and load.under_load else totals.decode_steps
    steps = [step for step in reader.steps(after=max(0, end - last)) if step.step <= end]
    console.print(Text(_identity(reader.identity)), soft_wrap=True)
    if steps:
        console.print(_steps_table(steps))
    else:
        console.print("No decode step was recorded.")
    console.print(Text(_totals(totals)), soft_wrap=True)
    if load is not None:
        console.print(Text(_load(load, totals.decode_steps)), soft_wrap=True)
    if error := reader.error():
        console.print(Text(f"last exception out of the allocator: {error}", style="red"), soft_wrap=True)


def flags(step: DecodeStep) -> str:
    """What the step was: CRITICAL, TIGHT, CLAMPED, or crossing."""
    if step.critical:
        return "CRITICAL"
    if step.tight:
        return "TIGHT"
    if step.clamped:
        return "CLAMPED"
    return "crossing" if step.crossing else ""


_STYLES = {"CRITICAL": "bold red", "TIGHT": "yellow", "CLAMPED": "cyan", "crossing": "", "": "dim"}


def _steps_table(steps: list[DecodeStep]) -> Table:
    # Narrow enough for a terminal of 80 columns.
    table = Table(box=None, padding=(0, 1, 0, 0))
    seldom = {field.name for field in STEP_FIELDS if field.seldom}
    left_out = seldom if not any(getattr(step, name) for step in steps for name in seldom) else set()
    columns = [field for field in STEP_FIELDS if field.heading and field.name not in left_out]
    first, *others = (field.heading for field in columns)
    for heading in (first, "ms", *others):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    before = steps[0].at_ns
    for step in steps:
        number, *others = (str(getattr(step, field.name)) for field in columns)
        elapsed = f"{(step.at_ns - before) / 1e6:.2f}"
        what = " ".join(filter(None, (flags(step), _OUTCOMES[step.outcome])))
        table.add_row(number, elapsed, *others, what, style=_STYLES[flags(step)])
        before = step.at_ns
    return table


def _identity(identity: Identity) -> str:
    opened = datetime.fromtimestamp(identity.opened_at, timezone.utc)
    return (
        f"SGLang {identity.sglang_version}, {identity.allocator} allocator, {identity.pool_pages} pages of "
        f"{identity.page_size}, process {identity.pid}, opened {opened:%Y-%m-%d %H:%M:%S} UTC"
    )


def _load(load: LoadSteps, recorded: int) -> str:
    after = max(0, recorded - load.before - load.under_load)
    text = f"under load, as the report counts: {load.under_load:,} of these steps; {load.before:,} came before, in "
    text += f"warm-up and calibration, and {after:,} after"
    return f"{text}, which --all shows" if after and load.under_load else text


def _totals(totals: Totals) -> str:
    steps, *others = (_total(measure, totals) for measure in RECORDED)
    return f"the whole recording, {steps}: {', '.join(others)}"


def _total(measure: Measure, totals: Totals) -> str:
    """A count in words; of what is a part of another, how much of it."""
    count = getattr(totals, measure.name)
    if not measure.share_of:
        return f"{count:,} {measure.words}"
    whole = getattr(totals, measure.share_of)
    share = f" ({count / whole:.1%})" if whole else ""
    return f"{measure.words} {count:,}{share}"
