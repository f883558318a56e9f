"""docs/architecture.md says what the tree is."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "architecture.md"
FOLDERS = ("service", "loadgen", "dashboards", "deploy", "benchmarks", "docs", "tests")


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


architecture = load(ROOT / "docs" / "draw_architecture.py")


def sections() -> dict[str, str]:
    """The page's text by heading."""
    parts = re.split(r"^## (.+)$", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def paths(text: str) -> list[str]:
    """What a text names in backticks that begins like a path of the project."""
    return [name for name in re.findall(r"`([\w./]+)`", text) if name.split("/")[0] in FOLDERS]


def test_every_path_that_the_page_names_exists() -> None:
    named = paths(PAGE.read_text())
    assert len(named) > 50
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_file_of_the_code_that_the_other_pages_name_exists() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    code = ("service", "loadgen", "dashboards", "benchmarks", "tests")
    named = {(page.name, name) for page in pages for name in paths(page.read_text()) if name.startswith(code)}
    assert len({page for page, _ in named}) > 5
    assert sorted(each for each in named if not (ROOT / each[1]).exists()) == []


def test_every_top_folder_with_code_is_on_the_page() -> None:
    holding_code = {path.relative_to(ROOT).parts[0] for path in ROOT.glob("[a-z]*/**/*.py")}
    assert holding_code <= set(FOLDERS)
    assert set(FOLDERS) <= set(paths(PAGE.read_text()))


def test_drawing_and_table_are_what_the_code_gives_today() -> None:
    page = PAGE.read_text()
    assert architecture.up_to_date(page) == page, "run: make architecture"


def test_every_room_says_in_a_docstring_what_it_is() -> None:
    assert [room for room in architecture.arrows() if not architecture.purpose(room)] == []


def test_imports_between_rooms_point_one_way() -> None:
    graph = architecture.arrows()
    height = {room: number for number, layer in enumerate(architecture.layers(graph)) for room in layer}
    assert all(height[other] < height[room] for room, others in graph.items() for other in others)


@pytest.mark.parametrize("walk", ["a decode step", "a spec", "a crash"])
def test_a_walk_enters_each_room_once(walk: str) -> None:
    text = sections()[f"The way of {walk}"]
    entered = [room for stop in re.findall(r"^\d\. (.+?):", text, flags=re.MULTILINE) for room in paths(stop)]
    rooms = set(architecture.arrows())
    assert len(entered) == len(set(entered)) >= 6
    assert set(entered) <= rooms


@pytest.mark.parametrize("walk", ["a decode step", "a spec", "a crash"])
def test_a_walk_names_files_of_the_room_that_it_is_in(walk: str) -> None:
    stops = re.split(r"^\d\. ", sections()[f"The way of {walk}"], flags=re.MULTILINE)[1:]
    for stop in stops:
        rooms = paths(stop.split(":")[0])
        files = [name for name in paths(stop.partition(":")[2]) if name.endswith(".py")]
        assert all(name.startswith(tuple(rooms)) for name in files), stop


def make_tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_an_import_is_an_arrow_however_it_is_written(tmp_path: Path) -> None:
    tree = make_tree(
        tmp_path,
        {
            "service/a/x.py": "from service.b.y import thing",
            "service/b/y.py": "import loadgen.c.z",
            "loadgen/c/z.py": "def late():\n    from ..d import w",
            "loadgen/d/w.py": "from . import v",
            "loadgen/d/v.py": "import json",
            "loadgen/e.py": "from .d.w import thing",
        },
    )
    assert architecture.arrows(tree) == {
        "service/a": {"service/b"},
        "service/b": {"loadgen/c"},
        "loadgen/c": {"loadgen/d"},
        "loadgen/d": set(),
        "loadgen/e.py": {"loadgen/d"},
    }


def test_an_arrow_that_follows_from_others_is_not_drawn() -> None:
    graph = {"a": {"b", "c"}, "b": {"c"}, "c": set()}
    assert architecture.direct(graph) == {"a": {"b"}, "b": {"c"}, "c": set()}
