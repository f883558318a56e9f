"""Draws *Pool pressure* from a Prometheus's answers: `python -m dashboards.draw URL START END FILE` (Unix times).

It is for looking at a run where there is no Grafana, and for the documentation. The queries are those of the committed
dashboard.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from dashboards.ask import Series, filled_in, query_range

DASHBOARD = Path(__file__).parent / "json" / "pool-pressure.json"
STEP_SECONDS = 1.0
LEAD_SECONDS = 10.0
RUNS = (
    'lastpage_run_load_seconds{job="lastpage"} * on (instance) group_left (run_id, scenario, allocator, engine) '
    'lastpage_run_info{job="lastpage"}'
)
# Grafana's names of units, in words.
UNITS = {
    "short": "count",
    "percentunit": "share",
    "percent": "%",
    "ops": "a second",
    "reqps": "requests a second",
    "s": "seconds",
    "decmbytes": "MB",
}
DRAWN = (
    "Steps a second",
    "Shares of decode steps",
    "Free pages at crossing steps",
    "Pages left over at crossing steps",
    "Occupancy",
    "Pages needed by a crossing step",
)


def draw(url: str, start: float, end: float, file: Path) -> None:
    """Draw what was between two times, and write it as a PNG.

    Raises:
        PrometheusError: a query is refused.
    """
    board = json.loads(DASHBOARD.read_text())
    panels = {panel["title"]: panel for panel in board["panels"]}
    runs = query_range(url, RUNS, start, end, STEP_SECONDS)
    start = max(start, min((run.times[0] for run in runs), default=start) - LEAD_SECONDS)
    crashes = query_range(url, filled_in(board["annotations"]["list"][0]["expr"]), start, end, STEP_SECONDS)
    marks = sorted({value / 1000 for series in crashes for value in series.values if start <= value / 1000 <= end})
    figure, places = plt.subplots(3, 2, figsize=(14, 12), layout="constrained", sharex=True)
    for title, axes in zip(DRAWN, places.flat, strict=True):
        _draw_panel(axes, panels[title], url, start, end)
        for run in runs:
            axes.axvspan(run.times[0] - start, run.times[-1] - start, color="black", alpha=0.06, linewidth=0)
        for number, mark in enumerate(marks):
            axes.axvline(mark - start, color="red", linestyle="--", label="crash" if number == 0 else None)
    _name_runs(places.flat[0], runs, start)
    handles, labels = places.flat[0].get_legend_handles_labels()
    places.flat[0].legend(handles, labels, loc="best", fontsize=8)
    figure.suptitle(f"{board['title']}, drawn from Prometheus's answers to the dashboard's queries")
    figure.supxlabel("seconds; shaded: a run is under load")
    figure.savefig(file, dpi=80)
    plt.close(figure)


def _name_runs(axes: Axes, runs: Sequence[Series], start: float) -> None:
    for run in runs:
        name = "{engine}, {scenario}, {allocator}".format_map(run.labels)
        axes.text(run.times[0] - start, 1.0, name, transform=axes.get_xaxis_transform(), fontsize=7, va="top")


def _draw_panel(axes: Axes, panel: Any, url: str, start: float, end: float) -> None:
    axes.set_title(panel["title"], fontsize=10)
    for target in panel["targets"]:
        answer = query_range(url, filled_in(target["expr"]), start, end, STEP_SECONDS)
        if panel["type"] == "heatmap":
            _draw_buckets(axes, answer, start)
        else:
            for series in answer:
                legend = target["legendFormat"]
                for label, value in series.labels.items():
                    legend = legend.replace("{{" + label + "}}", value)
                _draw_line(axes, series, legend, start)
    if panel["type"] != "heatmap":
        axes.set_ylim(bottom=0)
        if axes.lines:
            axes.legend(loc="best", fontsize=8)
    axes.set_ylabel(
        "pages" if panel["type"] == "heatmap" else UNITS[panel["fieldConfig"]["defaults"]["unit"]], fontsize=8
    )


def _draw_line(axes: Axes, series: Series, legend: str, start: float) -> None:
    """A line with gaps where there was nothing."""
    x: list[float] = []
    y: list[float] = []
    for at, value in zip(series.times, series.values, strict=True):
        if x and at - start - x[-1] > 2 * STEP_SECONDS:
            x.append(x[-1])
            y.append(float("nan"))
        x.append(at - start)
        y.append(value)
    axes.plot(x, y, label=legend, linewidth=1)


def _draw_buckets(axes: Axes, answer: Sequence[Series], start: float) -> None:
    """What each bucket grew by: Prometheus's are cumulative."""
    cumulative = {
        float(series.labels["le"]): dict(zip(map(round, series.times), series.values, strict=True)) for series in answer
    }
    bounds = sorted(cumulative)
    known = [float(at) for values in cumulative.values() for at in values]
    if not known:
        return
    # Every step of the time shown, so that a column does not reach over a gap to the next.
    times = [
        min(known) + number * STEP_SECONDS for number in range(round((max(known) - min(known)) / STEP_SECONDS) + 1)
    ]
    rows = []
    for lower, bound in zip([None, *bounds], bounds, strict=False):
        below: Mapping[int, float] = cumulative[lower] if lower is not None else {}
        rows.append([max(0.0, _at(cumulative[bound], at) - _at(below, at)) for at in times])
    used = [number for number, row in enumerate(rows) if any(row)]
    if not used:
        return
    shown = range(max(0, used[0] - 1), min(len(rows), used[-1] + 2))
    mesh = axes.pcolormesh(
        [at - start for at in times],
        range(len(shown)),
        [[value or float("nan") for value in rows[number]] for number in shown],
        shading="nearest",
        cmap="turbo",
    )
    axes.set_yticks(range(len(shown)), [f"≤ {bounds[number]:g}" for number in shown])
    axes.figure.colorbar(mesh, ax=axes, label="crossing steps")


def _at(values: Mapping[int, float], at: float) -> float:
    return values.get(round(at), 0.0)


def main(arguments: list[str]) -> None:
    if len(arguments) != 4:
        sys.exit(__doc__)
    url, start, end, file = arguments
    draw(url.rstrip("/"), float(start), float(end), Path(file))


if __name__ == "__main__":
    main(sys.argv[1:])
