"""`docs/measures.md`, from the registry itself: `python -m service.report.measures_page > docs/measures.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from service.measures import BOUNDED, COUNTED, DISTRIBUTIONS, MEASURES
from service.monitoring.series import PREFIX, SERIES, Series, SeriesKind
from service.plugin.flight import STEP_FIELDS, StepField
from service.plugin.measures import RECORDED, Measure
from service.report.spec_page import table

_INTRODUCTION = """\
# What is measured

Every measure of a run. This page is made by `make measures` from the registry (`service/measures.py`, and
`service/plugin/measures.py` for what is counted inside SGLang). The words are in the [README](../README.md).

In `report.json` the measures are under `measures`, counted from when the load began. *Edge*: to miss a threshold on it
says that the edge was not reached, and leaves a run inconclusive; *proof*: a lower bound on it also proves that the
pool was exactly exhausted; *badness*: no spec can allow any number of it.
"""

_NAMES = """\
Schema 2 of `report.json` renamed four measures, and thresholds on them and `steps.jsonl` follow: `extends` is
`prefill_batches`, `tight_extends` is `tight_prefill_batches`, `retracted` is `retractions`, `evicted` is
`evicted_pages`. The counter `lastpage_tight_extends_total` is `lastpage_tight_prefill_batches_total`.
"""

_RECORDED = """\
## Counted by the probe

The recorder keeps these in the flight recording, in this order, since the engine was started. The engine has them in
its own `/metrics`, the controller in its own, both as `lastpage_NAME_total`. Their names and order are part of the
recording's format: a recording of another format is refused.
"""

_SERIES = f"""\
## `/metrics` of the controller

All names start with `{PREFIX}`. Counters are the controller's, over all runs: they never go back when an engine is
started again. The series of a run (`run_*`, `pool_*`, `coverage_*`) end with it. Histograms are over **all** crossing
steps, or requests; the first two latencies only where the scenario streams.
"""

_STEPS = """\
## A recorded decode step

What the flight recording has of each of its last decode steps, in this order. `steps.jsonl` has the same, one object a
step, and `lastpage flight` prints the columns.
"""


def page() -> str:
    """The whole page."""
    return "\n".join(_parts())


def _parts() -> Iterable[str]:
    yield _INTRODUCTION
    yield _NAMES
    yield _RECORDED
    yield measures_table(RECORDED)
    yield "## In the report beside them\n"
    others = [each for each in MEASURES.values() if each not in RECORDED and each not in DISTRIBUTIONS]
    yield measures_table(others)
    yield _SERIES
    yield table(("series", "kind", "meaning"), map(_series_row, SERIES.values()))
    yield _STEPS
    yield table(("field", "bits", "column", "meaning"), map(_step_row, STEP_FIELDS))


def measures_table(measures: Sequence[Measure]) -> str:
    """Measures with all that is known of them."""
    columns = ("measure", "meaning", "unit", "kind", "from", "role", "threshold", "`/metrics`")
    return table(columns, map(_measure_row, measures))


def _measure_row(measure: Measure) -> tuple[str, ...]:
    return (
        f"`{measure.name}`",
        measure.help,
        measure.unit,
        measure.kind.value,
        measure.source.value,
        measure.role.value,
        _thresholds(measure),
        _series(measure),
    )


def _thresholds(measure: Measure) -> str:
    if measure.keys:
        return f"`{measure.name}.{measure.keys[0]}`, ..."
    return "yes" if measure.name in BOUNDED else "no"


def _series(measure: Measure) -> str:
    if measure in COUNTED or measure.by:
        return f"`{SERIES[measure.name].shown}`"
    return ""


def _series_row(series: Series) -> tuple[str, ...]:
    return f"`{series.shown}`", _KINDS[series.kind], series.help


_KINDS = {kind: kind.name.lower() for kind in SeriesKind}


def _step_row(field: StepField) -> tuple[str, ...]:
    return f"`{field.name}`", "64" if field.wide else "32", field.heading, field.help


if __name__ == "__main__":
    sys.stdout.write(page())
