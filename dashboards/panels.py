"""Panels as this project draws them: every one with a unit, thresholds and a description."""

from __future__ import annotations

from collections.abc import Sequence

from grafana_foundation_sdk.builders import bargauge, common, dashboard, heatmap, prometheus, stat, table, timeseries
from grafana_foundation_sdk.models import common as common_model
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.queries import DATASOURCE_UID

Step = tuple[float | None, str]
Target = tuple[str, str]
"""A query and its legend."""

PLAIN: tuple[Step, ...] = ((None, "text"),)
ANY_IS_BAD: tuple[Step, ...] = ((None, "green"), (1, "red"))
MORE_IS_BETTER: tuple[Step, ...] = ((None, "orange"), (1, "green"))
FULL: tuple[Step, ...] = ((None, "blue"), (0.9, "orange"), (1, "red"))


def source() -> common_model.DataSourceRef:
    return common_model.DataSourceRef(type_val="prometheus", uid=DATASOURCE_UID)


def thresholds(steps: Sequence[Step]) -> dashboard.ThresholdsConfig:
    built = [model.Threshold(value=value, color=color) for value, color in steps]
    return dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(built)


def query(expression: str, legend: str, number: int = 0) -> prometheus.Dataquery:
    reference = chr(ord("A") + number)
    return prometheus.Dataquery().datasource(source()).expr(expression).legend_format(legend).ref_id(reference)


def lines(
    title: str,
    description: str,
    targets: Sequence[Target],
    *,
    unit: str,
    steps: Sequence[Step] = PLAIN,
    width: int = 12,
    largest: float | None = None,
) -> timeseries.Panel:
    """Values over time."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(source())
        .unit(unit)
        .min(0)
        .thresholds(thresholds(steps))
        .color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.PALETTE_CLASSIC))
        .fill_opacity(10)
        .line_width(1)
        .legend(common.VizLegendOptions().display_mode(common_model.LegendDisplayMode.LIST).placement(_BOTTOM))
        .tooltip(common.VizTooltipOptions().mode(common_model.TooltipDisplayMode.MULTI))
        .span(width)
        .height(8)
    )
    if len(steps) > 1:
        panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(common_model.GraphThresholdsStyleMode.DASHED))
    if largest is not None:
        panel.max(largest)
    for number, (expression, legend) in enumerate(targets):
        panel.with_target(query(expression, legend, number))
    return panel


def buckets(title: str, description: str, expression: str, *, unit: str, width: int = 12) -> heatmap.Panel:
    """A histogram over time, from the growth of its buckets."""
    return (
        heatmap.Panel()
        .title(title)
        .description(description)
        .datasource(source())
        .unit("short")
        .thresholds(thresholds(PLAIN))
        .calculate(False)
        .cell_gap(0)
        .color(heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Turbo").steps(64))
        .y_axis(heatmap.YAxisConfig().unit(unit))
        .show_legend()
        .span(width)
        .height(9)
        .with_target(query(expression, "{{le}}").format(PromQueryFormat.HEATMAP))
    )


def number(
    title: str,
    description: str,
    expression: str,
    *,
    unit: str,
    steps: Sequence[Step] = PLAIN,
    legend: str = "",
    width: int = 4,
    when_none: str = "no run",
) -> stat.Panel:
    """The latest value, large."""
    return (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(source())
        .unit(unit)
        .thresholds(thresholds(steps))
        .no_value(when_none)
        .graph_mode(common_model.BigValueGraphMode.AREA)
        .color_mode(common_model.BigValueColorMode.VALUE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .span(width)
        .height(4)
        .with_target(query(expression, legend))
    )


def bars(
    title: str, description: str, expression: str, *, unit: str, legend: str, steps: Sequence[Step], width: int = 8
) -> bargauge.Panel:
    """One bar a label value."""
    return (
        bargauge.Panel()
        .title(title)
        .description(description)
        .datasource(source())
        .unit(unit)
        .min(0)
        .thresholds(thresholds(steps))
        .no_value("none")
        .orientation(common_model.VizOrientation.HORIZONTAL)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .span(width)
        .height(8)
        .with_target(query(expression, legend).instant())
    )


def rows(title: str, description: str, targets: Sequence[Target], *, unit: str, width: int = 24) -> table.Panel:
    """Latest values, one row for each set of labels; a target's legend names its column."""
    panel = (
        table.Panel()
        .title(title)
        .description(description)
        .datasource(source())
        .unit(unit)
        .thresholds(thresholds(PLAIN))
        .no_value("none")
        .span(width)
        .height(8)
    )
    for number_, (expression, legend) in enumerate(targets):
        panel.with_target(query(expression, legend, number_).instant().format(PromQueryFormat.TABLE))
    names = {f"Value #{chr(ord('A') + n)}": legend for n, (_, legend) in enumerate(targets)} | {"Value": targets[0][1]}
    hidden = dict.fromkeys(("Time", "__name__", "instance", "job"), True)
    panel.with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
    panel.with_transformation(
        model.DataTransformerConfig(id_val="organize", options={"excludeByName": hidden, "renameByName": names})
    )
    return panel


_BOTTOM = common_model.LegendPlacement.BOTTOM
