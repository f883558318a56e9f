"""The overlay: the folder on an engine's PYTHONPATH that brings the plugin into SGLang without installing anything."""

from __future__ import annotations

import shutil
from importlib import metadata
from pathlib import Path

from service import plugin
from service.plugin.entry import PLATFORM_NAME, PLUGIN_NAME
from service.plugin.settings import Profile

PACKAGE = "lastpage_plugin"


def write_overlay(folder: Path, profile: Profile) -> Path:
    """Write the plugin package and the entry points by which SGLang finds it.

    Only the rehearsal brings a platform along: on Ascend SGLang's own is used.

    Returns:
        `folder`, to be put on PYTHONPATH.
    """
    copy_plugin(folder)
    version = metadata.version("lastpage")
    info = folder / f"{PACKAGE}-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(_entry_points(profile))
    return folder


def copy_plugin(folder: Path) -> Path:
    """Copy the plugin's modules to `folder/lastpage_plugin`, and return that."""
    package = folder / PACKAGE
    package.mkdir(parents=True, exist_ok=True)
    for module in Path(plugin.__file__).parent.glob("*.py"):
        shutil.copyfile(module, package / module.name)
    return package


def _entry_points(profile: Profile) -> str:
    lines = ["[sglang.srt.plugins]", f"{PLUGIN_NAME} = {PACKAGE}.entry:register"]
    if profile is Profile.REHEARSAL:
        lines += ["", "[sglang.srt.platforms]", f"{PLATFORM_NAME} = {PACKAGE}.entry:activate"]
    return "\n".join(lines) + "\n"
