"""Claims about the dashboards: they are what the code makes, complete, and ask for series that exist."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import pytest
import yaml

from service.monitoring.metrics import ControllerMetrics
from service.monitoring.series import SERIES
from service.runs.events import EventType
from service.runs.model import RunStatus
from tests.dashboards.boards import ROOT, boards, expressions, panels
from tests.fake_executor import CRASH
from tests.monitoring.test_metrics import Feed

# The SDK's types for dashboards as Grafana 12 provisions them from files; those for its newer API are another format.
pytestmark = pytest.mark.filterwarnings("ignore:Prefer using dashboardv2.Dashboard:DeprecationWarning")

BOARDS = boards()
RULES = yaml.safe_load((ROOT / "dashboards/rules/lastpage.yml").read_text())["groups"]
needs_sdk = pytest.mark.skipif(sys.version_info < (3, 11), reason="the SDK wants Python 3.11")
each_board = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS.keys())


@needs_sdk
def test_committed_dashboards_are_those_that_the_code_makes() -> None:
    from dashboards.build import FOLDER, rendered

    committed = {path.name: path.read_text() for path in FOLDER.glob("*.json")}
    assert committed == rendered(), "python -m dashboards.build makes them anew"


@needs_sdk
@each_board
def test_dashboard_is_read_back_the_same_by_the_types_of_the_sdk(board: Any) -> None:
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    assert json.loads(JSONEncoder().encode(Dashboard.from_json(board))) == board


def test_every_module_that_builds_a_dashboard_has_one_with_a_name_of_its_own() -> None:
    sources = {path.stem.replace("_", "-"): path.read_text() for path in (ROOT / "dashboards").glob("*.py")}
    assert BOARDS.keys() == {name for name, source in sources.items() if "\ndef build() -> Dashboard:" in source}
    assert len({board["uid"] for board in BOARDS.values()}) == len(BOARDS) > 0


@each_board
def test_panel_says_what_it_shows_in_which_unit_and_from_when_on_it_matters(board: Any) -> None:
    for panel in panels(board):
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["thresholds"]["steps"], panel["title"]
        assert panel["targets"], panel["title"]


@each_board
def test_panels_stand_in_rows_and_do_not_overlap(board: Any) -> None:
    assert board["panels"][0]["type"] == "row"
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells


@each_board
def test_dashboard_has_its_variables_links_and_crash_marks(board: Any) -> None:
    assert {variable["name"] for variable in board["templating"]["list"]} == {"run", "engine", "version"}
    (link,) = board["links"]
    assert (link["type"], link["includeVars"], link["keepTime"]) == ("dashboards", True, True)
    assert set(link["tags"]) <= set(board["tags"])
    (marks,) = board["annotations"]["list"]
    assert marks["useValueForTime"] and "lastpage_last_crash_timestamp_seconds" in marks["expr"]


def test_everything_is_asked_of_the_provisioned_datasource() -> None:
    provisioned = yaml.safe_load((ROOT / "dashboards/provisioning/datasources/prometheus.yml").read_text())
    (datasource,) = provisioned["datasources"]
    named = set(re.findall(r'"uid": "([^"]+)"', json.dumps([board["panels"] for board in BOARDS.values()])))
    assert named == {datasource["uid"]}
    scraped = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    assert datasource["jsonData"]["timeInterval"] == scraped["global"]["scrape_interval"]


def series_of_the_controller() -> set[str]:
    """All that the controller ever shows."""
    feed = Feed()
    feed.status(RunStatus.LAUNCHING)
    feed.progress(1)
    feed.tell(EventType.CRASH, CRASH)
    return feed.names()


def test_the_controller_shows_the_series_of_the_registry_and_no_others() -> None:
    """But for when a counter was made; of what can be below zero there is no sum, and without it no count."""
    shown = {name for name in series_of_the_controller() if not name.endswith("_created")}
    known = {name for series in SERIES.values() for name in series.samples}
    assert shown == known - {f"lastpage_crossing_surplus_pages_{end}" for end in ("sum", "count")}


def test_panels_and_alerts_ask_for_series_that_the_controller_has() -> None:
    rules = {rule["alert"]: rule["expr"] for group in RULES for rule in group["rules"]}
    known = {name for series in SERIES.values() for name in series.samples}
    for name, expression in (expressions() | rules).items():
        asked = set(re.findall(r"\blastpage_\w+", expression))
        assert asked <= known, f"{name}: {asked - known}"
        # The engine shows some of these under the same names.
        assert not re.search(r'\blastpage_\w+(?!\w|{job="lastpage")', expression), name


def test_every_series_of_the_controller_is_named_in_the_documentation() -> None:
    """With its full name, less the prefix; the three series of a histogram under one."""
    text = (ROOT / "docs/measures.md").read_text()
    told = {name.split("{")[0] for name in re.findall(r"`([a-z0-9_]+(?:\{[a-z_,]+\})?)`", text)}
    series = {re.sub(r"_(bucket|sum|count|created)$", "", name) for name in series_of_the_controller()}
    assert {name.removeprefix("lastpage_") for name in series} - told == set()


@each_board
def test_every_unit_has_a_word_where_a_dashboard_is_drawn(board: Any) -> None:
    from dashboards.draw import UNITS

    units = {panel["fieldConfig"]["defaults"]["unit"] for panel in panels(board)}
    assert units <= UNITS.keys()


def test_every_series_of_the_controller_is_seen_somewhere() -> None:
    text = " ".join(expressions().values())
    families = {family.name for family in ControllerMetrics().collect()}
    assert [name for name in families if name not in text] == []
