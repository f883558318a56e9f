"""Builds the environment of a released SGLang, once, or lays one over an environment that is there already."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from service.engine.install.environment import (
    Environment,
    Recipe,
    Report,
    build_once,
    controller_platform,
    controller_python,
    environment_for,
)
from service.engine.install.pip import Pip, run_logged
from service.engine.install.sharing import Sharing, share
from service.engine.installation import Engine
from service.engine.registry import EngineRegistry
from service.errors import EngineNameRefused, InstallFailed
from service.home import Home

ROOM_BYTES = 14 * 1024**3  # a release with all that it pins is 11 GB; pip needs room for the wheels on their way

_DESCRIBE_BASE = """
import importlib.metadata, json, site, sys, sysconfig
folders = [*site.getsitepackages(), site.getusersitepackages()]
print(json.dumps({
    "folders": [folder for folder in folders if folder in sys.path],
    "distributions": [(found.metadata["Name"], found.version) for found in importlib.metadata.distributions()],
    "platform": f"{sys._base_executable} {sys.implementation.cache_tag} {sysconfig.get_platform()}",
}))
"""


@dataclass(frozen=True)
class Base:
    """An environment whose packages are shared.

    Attributes:
        folders: its site-packages folders, in import order.
        distributions: what is installed there, canonical name to version.
        platform: see `Recipe.python`.
    """

    engine: Engine
    folders: tuple[str, ...]
    distributions: Mapping[str, str]
    platform: str


def install(
    home: Home, version: str, *, base: str | None = None, shared: bool = True, report: Report = lambda _: None
) -> Engine:
    """Have a release of SGLang installed and registered under its version number. At once when it is there already.

    Args:
        version: a release number, such as `0.5.23`.
        base: the engine to share packages with; when not given, the newest release that stands on its own feet.
        shared: False installs everything that the release pins, sharing nothing.
        report: is told what happens, a line at a time.

    Raises:
        InstallFailed: it could not be built; nothing is registered, and the next call starts over.
        EngineNotFound: there is no engine named `base`.
        EngineNameRefused: an added engine has that name.
    """
    version = _release_number(version)
    registry = EngineRegistry(home.ensure())
    there = _already(registry, version, base=base, shared=shared)
    if there is not None:
        return there
    chosen = _choose_base(registry, version, base) if shared else None
    if chosen is None:
        recipe = Recipe(version, controller_platform())
    else:
        recipe = Recipe(version, chosen.platform, chosen.folders)
    environment = environment_for(home, recipe)
    build_once(environment, lambda empty: _build(empty, recipe, chosen, report), report)
    return registry.record(
        Engine(
            name=version,
            python=environment.python,
            origin="installed",
            version=version,
            base=chosen.engine.name if chosen else None,
        )
    )


def ensure(home: Home, version: str, *, report: Report = lambda _: None) -> Engine:
    """The engine that a soak runs on when none is named: this machine's Ascend engine, else that release, installed."""
    return EngineRegistry(home).ascend() or install(home, version, report=report)


def _release_number(version: str) -> str:
    try:
        return str(Version(version))
    except InvalidVersion as error:
        raise InstallFailed(f"version: {version!r} is not a release number such as 0.5.23") from error


def _already(registry: EngineRegistry, version: str, *, base: str | None, shared: bool) -> Engine | None:
    """The registered engine, if it is complete and answers what is asked for."""
    for engine in registry.list():
        if engine.name == version and engine.origin == "added":
            raise EngineNameRefused(f"version: {version!r} is the name of an added engine; remove that first")
        if engine.name != version or not Environment(engine.folder).complete:
            continue
        if engine.base is None or (shared and base in (None, engine.base)):
            return engine
    return None


def _choose_base(registry: EngineRegistry, version: str, name: str | None) -> Base | None:
    if name is None:
        candidates = [
            engine
            for engine in registry.list()
            if engine.origin == "installed" and engine.base is None and Environment(engine.folder).complete
        ]
        found = max(candidates, key=lambda engine: Version(engine.version or "0"), default=None)
    else:
        found = registry.get(name)
    if found is None:
        return None
    if found.base is not None:
        raise InstallFailed(f"base: {found.name!r} shares packages of {found.base!r} itself; use {found.base!r}")
    if found.name == version:
        raise InstallFailed(f"base: {found.name!r} is the release that is to be installed")
    return _describe(found)


def _describe(engine: Engine) -> Base:
    command = [str(engine.python), "-c", _DESCRIBE_BASE]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, check=True)
        answer = json.loads(ran.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        raise InstallFailed(
            f"base: the interpreter of {engine.name!r}, {engine.python}, did not answer: {error}"
        ) from error
    # The first distribution of a name is the one that is imported.
    distributions: dict[str, str] = {
        canonicalize_name(name): found for name, found in reversed(answer["distributions"]) if name
    }
    return Base(engine, tuple(answer["folders"]), distributions, answer["platform"])


def _build(environment: Environment, recipe: Recipe, base: Base | None, report: Report) -> None:
    environment.log.unlink(missing_ok=True)
    pip = Pip(environment.python, environment.log, report)
    release = Requirement(f"sglang=={recipe.release}")
    if base is None:
        _build_full(environment, pip, release, report)
        kept: list[str] = []
    else:
        sharing = _build_shared(environment, pip, release, base, report)
        kept = [str(one) for one in sharing.kept]
    environment.seal(
        {"release": recipe.release, "python": recipe.python, "shared": list(recipe.shared), "left_to_base": kept}
    )
    report(f"{release} is installed in {environment.folder}")


def _build_full(environment: Environment, pip: Pip, release: Requirement, report: Report) -> None:
    free = shutil.disk_usage(environment.folder.parent).free
    if free < ROOM_BYTES:
        raise InstallFailed(
            f"{environment.folder.parent} has {free / 1e9:.1f} GB free; {release} with all that it pins needs "
            f"{ROOM_BYTES / 1e9:.0f} GB. LASTPAGE_HOME chooses another place"
        )
    report(f"installing {release} with all that it pins (11 GB; minutes)")
    _create(environment, controller_python(), report)
    pip.install("--upgrade", "pip")
    pip.install(str(release))


def _build_shared(environment: Environment, pip: Pip, release: Requirement, base: Base, report: Report) -> Sharing:
    report(f"installing {release}, sharing the packages of {base.engine.name} (--no-share would not)")
    _create(environment, base.engine.python, report)
    pip.install("--upgrade", "pip")
    sharing = share(release, base.distributions, pip.choose, lambda: pip.markers)
    pins = [f"{candidate.name}=={candidate.version}" for candidate in sharing.install]
    report(f"its own: {', '.join(pins)}")
    if sharing.kept:
        report(f"accelerator packages left as {base.engine.name} has them: {', '.join(map(str, sharing.kept))}")
    pip.install("--no-deps", *pins)
    # Written after pip is done, so that pip never sees, and never touches, what the base has installed.
    environment.share(base.folders)
    return sharing


def _create(environment: Environment, python: Path, report: Report) -> None:
    run_logged([str(python), "-I", "-m", "venv", str(environment.folder)], environment.log, report)
