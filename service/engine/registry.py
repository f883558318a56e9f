"""The engines that lastpage knows, kept as one JSON file each."""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from packaging.version import InvalidVersion, Version
from pydantic import ValidationError

from service.engine.check import check
from service.engine.installation import NAME_PATTERN, Engine
from service.engine.simulated import SIMULATED_ENGINE, SIMULATION_VARIABLE, Simulation
from service.errors import EngineError, EngineInUse, EngineNameRefused, EngineNotFound
from service.files import write_atomically
from service.home import Home

__all__ = ["DEFAULT_RELEASE", "Engine", "EngineError", "EngineNotFound", "EngineRegistry"]

DEFAULT_RELEASE = "0.5.23"
SYSTEM_ENGINE = "system"
_RELEASE_PATTERN = r"\d+(\.\d+)+\S*"


class EngineRegistry:
    """Finds, adds and removes engines.

    Args:
        home: where the registry is kept.
        devices: where the kernel lists devices; an Ascend driver puts `davinci0`, ... there.
    """

    def __init__(self, home: Home, *, devices: Path = Path("/dev")) -> None:
        self._home = home
        self._devices = devices

    def list(self) -> list[Engine]:
        """Every registered engine, by name. Files that do not hold an engine are passed over."""
        engines = []
        for path in sorted(self._home.engines.glob("*.json")):
            try:
                engines.append(Engine.model_validate_json(path.read_bytes()))
            except (ValidationError, FileNotFoundError):
                continue
        return engines

    def get(self, name: str) -> Engine:
        """The engine of that name.

        Raises:
            EngineNotFound: there is none.
        """
        known = {engine.name: engine for engine in self.list()}
        if name not in known and (simulated := simulated_engine(name)) is not None:
            return simulated
        if name not in known:
            names = ", ".join(known) or "none yet; `lastpage engine install` or `lastpage engine add` makes one"
            if re.fullmatch(_RELEASE_PATTERN, name):
                raise EngineNotFound(
                    f"{name!r} is not installed; `lastpage engine install {name}` does that. Known engines: {names}"
                )
            raise EngineNotFound(f"{name!r} is not known. Known engines: {names}")
        return known[name]

    def add(self, name: str, python: Path, *, version: str | None = None) -> Engine:
        """Register an installation by its interpreter. A name that was added before is given the new interpreter.

        Raises:
            EngineNameRefused, EngineNotFound: see `addable`.
        """
        return self.record(self.addable(name, python, version=version))

    def addable(self, name: str, python: Path, *, version: str | None = None) -> Engine:
        """An installation that can be registered, by its interpreter.

        Raises:
            EngineNameRefused: the name is malformed, or belongs to a release that lastpage installed.
            EngineNotFound: there is no interpreter at that path.
        """
        self._check_name(name)
        if simulated_engine(name) is not None:
            raise EngineNameRefused(f"{name!r} is a simulated engine's name; choose another one")
        # Not resolved: a virtual environment's interpreter is a link, and following it leaves the environment.
        python = Path(os.path.abspath(os.path.expanduser(python)))  # noqa: PTH100, PTH111
        if not (python.is_file() and os.access(python, os.X_OK)):
            raise EngineNotFound(f"{str(python)!r} is not an executable file; give the path of an interpreter")
        return Engine(name=name, python=python, origin="added", version=version)

    def add_simulated(self, name: str, simulation: Simulation) -> Engine:
        """Register a simulated engine.

        Raises:
            EngineNameRefused: the name is malformed, or belongs to a release that lastpage installed.
        """
        self._check_name(name)
        return self.record(_simulated(name, simulation))

    def _check_name(self, name: str) -> None:
        if not re.fullmatch(NAME_PATTERN, name):
            raise EngineNameRefused(f"{name!r} is not allowed; use letters, digits, '.', '_', '+' and '-'")
        if any(engine.name == name and engine.origin == "installed" for engine in self.list()):
            raise EngineNameRefused(f"{name!r} is an installed release; choose another name")

    def record(self, engine: Engine) -> Engine:
        """Write an engine down, in place of an older one of the same name."""
        self._home.ensure()
        write_atomically(self._path(engine.name), engine.model_dump_json(indent=2) + "\n")
        return engine

    def remove(self, name: str) -> Engine:
        """Forget an engine, and delete its environment if lastpage built it.

        Raises:
            EngineNotFound: there is none of that name.
            EngineInUse: another engine shares its packages.
        """
        engine = self.get(name)
        sharing = [other.name for other in self.list() if other.base == name]
        if sharing:
            raise EngineInUse(f"{name!r} is what {', '.join(sharing)} is built on; remove that first")
        self._path(name).unlink(missing_ok=True)
        if engine.origin == "installed" and engine.folder.parent == self._home.environments:
            shutil.rmtree(engine.folder, ignore_errors=True)
        return engine

    def default(self) -> Engine:
        """The engine to run when none is named.

        One with an NPU if this machine has one, else the newest installed release, else the only one there is.

        Raises:
            EngineNotFound: there is none of these.
        """
        engine = self.ascend() or self.newest_installed() or self._only_one()
        if engine is None:
            raise EngineNotFound(
                f"none is installed. `lastpage engine install {DEFAULT_RELEASE}` builds one for the CPU "
                "rehearsal; `lastpage engine add NAME --python PATH` registers an Ascend image's own"
            )
        return engine

    def newest_installed(self) -> Engine | None:
        """The installed release with the highest version."""
        usable = [engine for engine in self.list() if engine.origin == "installed" and engine.python.exists()]
        return max(usable, key=_release, default=None)

    def _only_one(self) -> Engine | None:
        """The registered engine, where there is just one: a container's, which was added by its path."""
        usable = [engine for engine in self.list() if engine.simulation is None and engine.python.exists()]
        return usable[0] if len(usable) == 1 else None

    def ascend(self) -> Engine | None:
        """A registered engine that sees an NPU, else the `python3` on PATH if it has SGLang and sees one."""
        if not any(self._devices.glob("davinci[0-9]*")):
            return None
        for engine in self.list():
            if check(engine, home=self._home).npu.available:
                return engine
        python = shutil.which("python3")
        if python is None:
            return None
        found = check(Engine(name=SYSTEM_ENGINE, python=Path(python), origin="added"), home=self._home)
        if found.npu.available and found.version is not None:
            return self.add(SYSTEM_ENGINE, Path(python), version=found.version)
        return None

    def _path(self, name: str) -> Path:
        return self._home.engines / f"{name}.json"


def simulated_engine(name: str) -> Engine | None:
    """The simulated engine of a name that is known without being added; None when the name is not of that form.

    `$LASTPAGE_SIMULATION` has its settings, where it is set.

    Raises:
        EngineNameRefused: what the name says of a release, or the variable of settings, is not allowed.
    """
    found = re.fullmatch(rf"{SIMULATED_ENGINE}(-(?P<release>{_RELEASE_PATTERN}))?", name)
    if found is None:
        return None
    try:
        simulation = Simulation.from_json(os.environ.get(SIMULATION_VARIABLE) or "{}")
        if found["release"]:
            simulation = replace(simulation, release=found["release"])
    except ValueError as error:
        raise EngineNameRefused(f"{name!r} cannot be simulated: {error}") from None
    return _simulated(name, simulation)


def _simulated(name: str, simulation: Simulation) -> Engine:
    python = Path(sys.executable)
    return Engine(name=name, python=python, origin="simulated", version=simulation.version, simulation=simulation)


def _release(engine: Engine) -> Version:
    try:
        return Version(engine.version or "0")
    except InvalidVersion:
        return Version("0")
