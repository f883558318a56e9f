"""What all dashboards have in common: name, variables, links between them, and crashes as marks."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as model

from dashboards.panels import source
from dashboards.queries import ours, variable

TAG = "lastpage"


def frame(uid: str, title: str, description: str) -> dashboard.Dashboard:
    """An empty dashboard. Panels are put in rows; what comes later gets a row of its own."""
    return (
        dashboard.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags([TAG])
        .readonly()
        .timezone("browser")
        .time("now-30m", "now")
        .refresh("10s")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .link(
            dashboard.DashboardLink("lastpage")
            .type(model.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .include_vars(True)
            .keep_time(True)
        )
        .annotation(_crashes())
        .with_variable(_variable("engine", "Engine", variable("engine")))
        .with_variable(_variable("version", "SGLang", variable("sglang_version", 'engine=~"$engine"')))
        .with_variable(_variable("run", "Run", variable("run_id", 'engine=~"$engine", sglang_version=~"$version"')))
    )


def _variable(name: str, label: str, query: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .query({"query": query, "refId": "StandardVariableQuery"})
        .definition(query)
        .datasource(source())
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_DESC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(model.VariableOption(selected=True, text=["All"], value=["$__all"]))
    )


def _crashes() -> dashboard.AnnotationQuery:
    """A mark where an engine crashed: at the crash's own time, not at the scrape that first saw it."""
    return (
        dashboard.AnnotationQuery()
        .name("Crashes")
        .datasource(source())
        .enable(True)
        .icon_color("red")
        .expr(f"{ours('lastpage_last_crash_timestamp_seconds')} * 1000")
        .use_value_for_time(True)
        .title_format("An engine crashed")
    )
