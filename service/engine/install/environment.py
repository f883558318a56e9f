"""Engine environments on disk: one folder each, named by a digest of what is in it, complete once its seal is written.

The seal is the last file written, so a folder without one was left half-built, and is built again. A lock beside the
folder lets one process build while others wait for it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from service.files import write_atomically
from service.home import Home

SEAL = "lastpage-environment.json"

Report = Callable[[str], None]


@dataclass(frozen=True)
class Recipe:
    """What an environment is made of.

    Attributes:
        release: the SGLang version.
        python: the interpreter that the environment is made with, and the platform it runs on.
        shared: site-packages folders of the base whose packages are shared, in import order; empty for none.
    """

    release: str
    python: str
    shared: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The environment's folder name: the release, and a digest of the whole recipe."""
        content = json.dumps(asdict(self), sort_keys=True)
        return f"sglang-{self.release}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"


@dataclass(frozen=True)
class Environment:
    """A place for an engine's Python environment, built or not."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def log(self) -> Path:
        """What pip said while it was built. Beside the folder, so that it outlives a failed build."""
        return self.folder.with_name(f"{self.folder.name}.log")

    @property
    def lock(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.lock")

    @property
    def complete(self) -> bool:
        """Whether it was built to the end, and its interpreter is still there."""
        return (self.folder / SEAL).is_file() and self.python.exists()

    def share(self, folders: Sequence[str]) -> None:
        """Put other site-packages folders behind its own in the import path, with what their own .pth files do."""
        (own,) = self.folder.glob("lib/python*/site-packages")
        lines = [f"import site; site.addsitedir({folder!r})" for folder in folders]
        (own / "lastpage-shared.pth").write_text("\n".join(lines) + "\n")

    def seal(self, content: dict[str, object]) -> None:
        """Mark it complete, saying what is in it."""
        write_atomically(self.folder / SEAL, json.dumps(content, indent=2) + "\n")


def environment_for(home: Home, recipe: Recipe) -> Environment:
    """Where the environment of a recipe is, or will be."""
    return Environment(home.environments / recipe.key)


def build_once(environment: Environment, build: Callable[[Environment], None], report: Report) -> None:
    """Have the environment complete, building it if nobody has, and waiting while another process does.

    Args:
        build: makes the folder and seals it. When it raises, what it made is deleted and the error passed on.
    """
    if environment.complete:
        return
    environment.folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(environment, report):
        if environment.complete:
            return
        if environment.folder.exists():
            report(f"{environment.folder.name} was left half-built; building it again")
            shutil.rmtree(environment.folder)
        try:
            build(environment)
        except Exception:
            shutil.rmtree(environment.folder, ignore_errors=True)
            raise


def _locked(environment: Environment, report: Report) -> FileLock:
    lock = FileLock(environment.lock)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        report(f"another process is building {environment.folder.name}; waiting for it")
    return lock


def controller_python() -> Path:
    """The interpreter below the controller's own virtual environment."""
    # CPython's own name for it; `venv` relies on the same attribute.
    return Path(getattr(sys, "_base_executable", sys.executable))


def controller_platform() -> str:
    """The interpreter's binary interface, for a recipe."""
    return f"{os.fspath(controller_python())} {sys.implementation.cache_tag} {sysconfig.get_platform()}"
