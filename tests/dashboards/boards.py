"""The committed dashboards as tests read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "dashboards" / "json"


def boards() -> dict[str, Any]:
    """The dashboards by name, as committed."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def panels(board: Any) -> list[Any]:
    """A dashboard's panels, those in collapsed rows included, rows themselves not."""
    found: list[Any] = []
    for panel in board["panels"]:
        found += panel.get("panels", []) if panel["type"] == "row" else [panel]
    return found


def expressions() -> dict[str, str]:
    """Every query of every panel, by dashboard, panel and legend."""
    return {
        f"{name}: {panel['title']}: {target.get('legendFormat') or target['refId']}": target["expr"]
        for name, board in boards().items()
        for panel in panels(board)
        for target in panel["targets"]
    }
