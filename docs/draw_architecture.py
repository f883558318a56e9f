"""Writes the drawing and the table of rooms into docs/architecture.md, from the code: `make architecture`.

A *room* is a folder of `service/` or `loadgen/` with all below it, or a module that stands beside those folders. An
arrow is an import from one room to another. What a room is for is the first line of its docstring.
"""

from __future__ import annotations

import ast
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "architecture.md"
TOPS = ("service", "loadgen")

Arrows = dict[str, set[str]]
"""The rooms that each room imports."""


def room_of(path: Path) -> str | None:
    """The room of a file, by its path below ROOT; None for a top folder's own `__init__.py`, which says nothing."""
    if len(path.parts) > 2:
        return "/".join(path.parts[:2])
    return None if path.name == "__init__.py" else path.as_posix()


def modules(root: Path = ROOT) -> dict[str, Path]:
    """Every module of the project that is in a room: its path below `root`, by its dotted name."""
    paths = sorted(path.relative_to(root) for top in TOPS for path in (root / top).rglob("*.py"))
    dotted = {".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in paths}
    return {name: path for name, path in dotted.items() if room_of(path) is not None}


def imported_names(tree: ast.Module, path: Path) -> Iterator[str]:
    """Dotted names of all that a file imports, also inside functions: `from a.b import c` gives a.b and a.b.c."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # One dot is the file's own folder, each further one the folder above.
            package = path.parts[: len(path.parts) - node.level] if node.level else ()
            module = ".".join((*package, *filter(None, [node.module])))
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def arrows(root: Path = ROOT) -> Arrows:
    """The imports between rooms; each room is a key."""
    known = modules(root)
    found: Arrows = {room_of(path) or "": set() for path in known.values()}
    for path in known.values():
        room = room_of(path) or ""
        names = imported_names(ast.parse((root / path).read_text()), path)
        found[room] |= {room_of(known[name]) or "" for name in names if name in known} - {room}
    return found


def layers(graph: Arrows) -> list[list[str]]:
    """Rooms by layer, the lowest first: each imports from lower layers alone.

    Raises:
        graphlib.CycleError: imports between rooms go round in a circle, so there are no layers.
    """
    sorter = graphlib.TopologicalSorter(graph)
    sorter.prepare()
    found: list[list[str]] = []
    while ready := sorter.get_ready():
        found.append(sorted(ready))
        sorter.done(*ready)
    return found


def direct(graph: Arrows) -> Arrows:
    """The arrows that no way over other rooms replaces: few enough to be drawn, and they reach the same rooms."""
    reached: Arrows = {}
    for room in (room for layer in layers(graph) for room in layer):
        reached[room] = graph[room].union(*(reached[other] for other in graph[room]))
    return {room: others - set().union(*(reached[other] for other in others)) for room, others in graph.items()}


def drawing(graph: Arrows) -> str:
    """The rooms as a Mermaid flow chart, the highest layer on top."""
    lines = ["```mermaid", "flowchart TD"]
    for layer in reversed(layers(graph)):
        for room in layer:
            shape = '[["{}"]]' if room.endswith(".py") else '["{}"]'
            lines.append(f"    {node(room)}{shape.format(room)}:::{room.split('/')[0]}")
    for room, others in sorted(direct(graph).items()):
        lines += [f"    {node(room)} --> {node(other)}" for other in sorted(others)]
    lines += ["    classDef service fill:#dbeafe,stroke:#1e40af,color:#0f172a"]
    lines += ["    classDef loadgen fill:#dcfce7,stroke:#166534,color:#0f172a", "```"]
    return "\n".join(lines)


def node(room: str) -> str:
    return re.sub(r"\W", "_", room)


def table(graph: Arrows, root: Path = ROOT) -> str:
    """A line for each room: what it is, and all rooms that it imports."""
    lines = ["| room | what it is | imports |", "|---|---|---|"]
    for layer in reversed(layers(graph)):
        for room in layer:
            imports = ", ".join(f"`{other}`" for other in sorted(graph[room]))
            lines.append(f"| `{room}` | {purpose(room, root)} | {imports} |")
    return "\n".join(lines)


def purpose(room: str, root: Path = ROOT) -> str:
    """The first line of a room's docstring; empty where it has none."""
    path = root / room if room.endswith(".py") else root / room / "__init__.py"
    return (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n")[0]


def with_blocks(page: str, blocks: dict[str, str]) -> str:
    """A page with what stands between the marks `<!-- NAME -->` and `<!-- /NAME -->` written anew."""
    for name, text in blocks.items():
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        before, _, rest = page.partition(begin)
        page = f"{before}{begin}\n{text}\n{end}{rest.partition(end)[2]}"
    return page


def up_to_date(page: str) -> str:
    """A page with the drawing and the table as the code has them now."""
    graph = arrows()
    return with_blocks(page, {"drawing": drawing(graph), "rooms": table(graph)})


if __name__ == "__main__":
    PAGE.write_text(up_to_date(PAGE.read_text()))
