"""Imports run one way: see "Layout" in CONTRIBUTING.md."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PLUGIN_MAY_IMPORT = {"torch", "prometheus_client", "sglang"}


def imported(path: Path) -> set[tuple[int, str]]:
    """(relative level, module) of every import in a file, those inside functions included."""
    found: set[tuple[int, str]] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {(0, alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.level, node.module or ""))
    return found


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("path", modules("loadgen"), ids=lambda path: str(path.relative_to(ROOT)))
def test_loadgen_knows_nothing_of_service(path: Path) -> None:
    assert not {name for _, name in imported(path) if name.split(".")[0] == "service"}


@pytest.mark.parametrize("path", modules("service/plugin"), ids=lambda path: path.name)
def test_plugin_imports_only_what_an_engine_has(path: Path) -> None:
    absolute = {name.split(".")[0] for level, name in imported(path) if level == 0}
    assert absolute - set(sys.stdlib_module_names) <= PLUGIN_MAY_IMPORT


@pytest.mark.parametrize("path", modules("service/plugin"), ids=lambda path: path.name)
def test_plugin_works_under_any_package_name(path: Path) -> None:
    levels = {level for level, _ in imported(path)}
    assert levels <= {0, 1}


def test_importing_service_costs_nothing() -> None:
    assert (ROOT / "service" / "__init__.py").read_text().strip() == ""


def test_importing_an_engine_module_that_is_stdlib_only_pulls_nothing_in() -> None:
    assert imported(ROOT / "service" / "engine" / "__init__.py") == set()


# The order of rooms: each may import those before it, never one behind it. A new room has its place here.
SERVICE = [
    *("errors", "concurrency", "event_loop", "files", "plugin", "home", "measures"),
    *("engine", "spec", "runs", "store", "execution", "simulation", "monitoring", "shrink", "report"),
    *("controller", "api", "cli"),
]
LOADGEN = [
    *("errors", "clock", "statistics", "traces", "sglang", "requests", "http", "checks"),
    *("coverage", "volleys", "scenarios", "shrink", "driver"),
]


def rooms_imported(path: Path, package: str) -> set[str]:
    """The rooms of its own package from which a file imports."""
    names = set()
    parts = path.relative_to(ROOT).with_suffix("").parts
    for level, name in imported(path):
        absolute = [*parts[: len(parts) - level], name] if level else [name]
        room = ".".join(filter(None, absolute)).split(".")
        if room[0] == package and len(room) > 1:
            names.add(room[1])
    return names


@pytest.mark.parametrize(("package", "order"), [("service", SERVICE), ("loadgen", LOADGEN)])
def test_each_room_imports_only_those_before_it(package: str, order: list[str]) -> None:
    place = {room: number for number, room in enumerate(order)}
    rooms = {path.relative_to(ROOT / package).parts[0].removesuffix(".py") for path in modules(package)} - {"__init__"}
    assert rooms == set(order)
    back = [
        f"{path.relative_to(ROOT)} imports {package}.{room}"
        for path in modules(package)
        if (own := path.relative_to(ROOT / package).parts[0].removesuffix(".py")) != "__init__"
        for room in rooms_imported(path, package)
        if room != own and place[room] > place[own]
    ]
    assert back == []


def in_package(path: Path) -> set[Path]:
    """Files of this repository that a file imports relatively, also what is only for type checks."""
    found: set[Path] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        base = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
        names = [base / alias.name for alias in node.names]
        candidates = [base.with_suffix(".py"), base / "__init__.py", *(name.with_suffix(".py") for name in names)]
        found |= {candidate for candidate in candidates if candidate.is_file()}
    return found


def test_no_module_of_what_sglang_does_imports_itself_by_way_of_others() -> None:
    files = set(modules("loadgen/sglang"))
    imports = {path: in_package(path) & files for path in files}
    assert any(imports.values())
    while free := {path for path, needed in imports.items() if not needed & imports.keys()}:
        imports = {path: needed for path, needed in imports.items() if path not in free}
    assert not imports, sorted(str(path.relative_to(ROOT)) for path in imports)


@pytest.mark.parametrize("path", modules("loadgen/sglang"), ids=lambda path: str(path.relative_to(ROOT)))
def test_what_sglang_does_knows_nothing_of_the_rest_of_the_load_generator(path: Path) -> None:
    outside = {needed for needed in in_package(path) if (ROOT / "loadgen" / "sglang") not in needed.parents}
    assert outside <= {ROOT / "loadgen" / "errors.py"}


@pytest.mark.parametrize("path", modules("loadgen/coverage"), ids=lambda path: path.name)
def test_coverage_does_not_know_the_scenarios(path: Path) -> None:
    assert not {needed for needed in in_package(path) if (ROOT / "loadgen" / "scenarios") in needed.parents}
