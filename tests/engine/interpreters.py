"""Stand-ins for an engine's interpreter: shell scripts that answer as told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ANSWER: dict[str, Any] = {
    "sglang": "0.5.23",
    "torch": "2.14.1",
    "clamp": True,
    "npu": {"torch_npu": None, "available": False, "count": 0, "name": None, "problem": None},
    "problem": None,
    "files": [],
}


def script(path: Path, body: str) -> Path:
    """An executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def answering(path: Path, **changes: Any) -> Path:
    """An interpreter that answers a check, noting each call in `calls` beside it."""
    answer = json.dumps({**ANSWER, **changes})
    return script(path, f"echo call >> '{path.parent}/calls'\necho 'a warning on the way'\ncat <<'END'\n{answer}\nEND")


def calls(path: Path) -> int:
    """How often an `answering` interpreter has been started."""
    return len((path.parent / "calls").read_text().splitlines())
