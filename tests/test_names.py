"""A name of a class or a module stands for one thing in all of `service` and `loadgen`."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent

SAME_THING = {
    "check": "the look at an engine: `plugin/check.py` runs in its interpreter, `engine/check.py` reads it",
    "coverage": "which cells of the edge were hit: counted, kept in a run, and the command that shows it",
    "engine": "the subcommand of that name, and the engine of the simulation",
    "errors": "the errors of a package, drawn at its top, or their answers over HTTP",
    "measures": "what is measured in a run, and of it what the probe counts",
    "metrics": "series on a /metrics page: the probe's, the simulated engine's, the controller's",
    "registry": "what can be named in a spec: engines, scenarios",
    "scenario": "the scenario of the folder that it is in",
}
"""Names that several modules have, and the one thing that they mean."""


def paths() -> list[Path]:
    return [path for top in ("service", "loadgen") for path in sorted((ROOT / top).rglob("*.py"))]


def classes(path: Path) -> Iterator[str]:
    """Names of a file's classes, without the underscore of the private ones: they are talked about all the same."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef):
            yield node.name.lstrip("_")


def repeated(names: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: places for name, places in names.items() if len(places) > 1}


def test_no_two_classes_have_the_same_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in paths():
        for name in classes(path):
            places[name].append(str(path.relative_to(ROOT)))
    assert len(places) > 100
    assert repeated(places) == {}


def modules() -> dict[str, list[str]]:
    places: dict[str, list[str]] = defaultdict(list)
    for path in paths():
        if not path.stem.startswith("__"):
            places[path.stem].append(str(path.relative_to(ROOT)))
    return places


def test_modules_have_the_same_name_only_where_they_are_about_the_same_thing() -> None:
    others = {name: places for name, places in repeated(modules()).items() if name not in SAME_THING}
    assert others == {}, "rename one, or say in SAME_THING what both are"


def test_every_name_that_several_modules_may_have_is_one_that_several_have() -> None:
    assert SAME_THING.keys() <= repeated(modules()).keys()
