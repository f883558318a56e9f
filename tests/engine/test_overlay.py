from __future__ import annotations

import importlib.metadata
from pathlib import Path

import service.plugin
from service.engine.overlay import write_overlay
from service.plugin.settings import Profile


def entry_points(folder: Path) -> dict[tuple[str, str], str]:
    (distribution,) = importlib.metadata.distributions(path=[str(folder)])
    return {(point.group, point.name): point.value for point in distribution.entry_points}


def test_rehearsal_overlay_brings_a_platform_and_a_plugin(tmp_path: Path) -> None:
    assert entry_points(write_overlay(tmp_path, Profile.REHEARSAL)) == {
        ("sglang.srt.platforms", "lastpage_rehearsal"): "lastpage_plugin.entry:activate",
        ("sglang.srt.plugins", "lastpage"): "lastpage_plugin.entry:register",
    }


def test_ascend_overlay_leaves_the_platform_to_sglang(tmp_path: Path) -> None:
    assert entry_points(write_overlay(tmp_path, Profile.ASCEND)) == {
        ("sglang.srt.plugins", "lastpage"): "lastpage_plugin.entry:register"
    }


def test_overlay_holds_every_module_of_the_plugin(tmp_path: Path) -> None:
    write_overlay(tmp_path, Profile.REHEARSAL)
    source = Path(service.plugin.__file__).parent
    copied = {path.name: path.read_bytes() for path in (tmp_path / "lastpage_plugin").glob("*.py")}
    assert copied == {path.name: path.read_bytes() for path in source.glob("*.py")}


def test_overlay_can_be_written_where_one_stands(tmp_path: Path) -> None:
    write_overlay(tmp_path, Profile.REHEARSAL)
    assert len(entry_points(write_overlay(tmp_path, Profile.ASCEND))) == 1
