"""Claims about what benchmarks are asked for: every fault is told before anything starts, and nothing is deleted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from rich.console import Console

from benchmarks import peers, scenarios
from benchmarks.arguments import keep_faults, out_faults, set_aside
from benchmarks.scenarios import faults_beside_the_pool, spec_of
from service.spec.faults import Fault, InvalidSpec

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LASTPAGE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(scenarios, "PAGE", tmp_path / "scenarios.md")
    monkeypatch.setattr(peers, "PAGE", tmp_path / "peers.md")

    async def soak(*_: Any) -> int:
        raise AssertionError("it was started")

    monkeypatch.setattr(scenarios, "soak", soak)


def called(monkeypatch: pytest.MonkeyPatch, of: Any, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["it", *arguments])
    code: int = of.main()
    return code


NOT_FOUND = "engine.name = 'nosuch': 'nosuch' is not known"


@pytest.mark.parametrize("of", [scenarios, peers])
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--engine", "nosuch"], NOT_FOUND),
        (["--duration", "0"], "load.duration = 0.0: must be greater than 0"),
        (["--duration", "-1"], "load.duration = -1.0: must be greater than 0"),
        (["--duration", "nan"], "load.duration = 'nan'"),
        (["--duration", "soon"], "duration = 'soon': not a duration"),
        (["--out", "/nope/x.md"], "out = '/nope/x.md': there is no folder /nope"),
        (["--out", "/dev/null"], "out = '/dev/null': it is not a regular file"),
    ],
)
def test_what_cannot_be_is_told_once_and_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    of: Any,
    arguments: list[str],
    told: str,
) -> None:
    assert called(monkeypatch, of, "--keep", str(tmp_path / "kept"), *arguments) == 2
    assert capsys.readouterr().err.count(told) == 1
    assert not list(tmp_path.glob("*.md")) and not (tmp_path / "kept").exists()


def test_all_faults_are_told_at_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["nosuch", "--pools", "some,-5,32", "--duration", "0", "--out", "/nope/x.md"]
    assert called(monkeypatch, scenarios, *arguments) == 2
    told = capsys.readouterr().err
    for part in ("scenario = 'nosuch': not among tight", "pools = 'some'", "load.duration = 0.0", "out = '/nope/x.md'"):
        assert told.count(part) == 1
    assert called(monkeypatch, scenarios, "--pools=-5") == 2
    assert "engine.pool_pages = -5: must be greater" in capsys.readouterr().err


def test_a_folder_that_cannot_be_one_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert keep_faults(tmp_path / "file") and keep_faults(tmp_path / "file" / "below")
    assert not keep_faults(tmp_path / "new" / "one") and not out_faults(tmp_path / "new" / "page.md")
    monkeypatch.setattr(scenarios, "faults_beside_the_pool", lambda _: ([], []))
    assert called(monkeypatch, scenarios, "--keep", str(tmp_path / "file")) == 2
    assert "keep = " in capsys.readouterr().err


async def test_only_what_does_not_fit_the_pool_is_a_row_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    misfit = Fault(field="engine.pool_pages", value=2, message="too few")
    monkeypatch.setattr(scenarios, "prepare", lambda *_: (None, [misfit]))
    spec = spec_of("tight", 2, 20.0, "0.5.23")
    assert await scenarios.run(spec, Path("/nowhere")) == {"status": "refused", "detail": "too few"}
    other = Fault(field="engine.name", value="0.5.23", message="not known")
    monkeypatch.setattr(scenarios, "prepare", lambda *_: (None, [misfit, other]))
    assert faults_beside_the_pool(spec) == ([other], [misfit])
    with pytest.raises(InvalidSpec, match="not known"):
        await scenarios.run(spec, Path("/nowhere"))


async def test_what_was_measured_is_set_aside_before_it_is_measured_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "tight-32-pages"

    async def soak(_controller: Any, _spec: Any, out: Path, _console: Console, _errors: Console) -> int:
        await anyio.Path(out).mkdir()
        await anyio.Path(out / "report.json").write_text('{"measures": {"decode_steps": 2}}')
        return 0

    monkeypatch.setattr(scenarios, "soak", soak)
    monkeypatch.setattr(scenarios, "prepare", lambda *_: (object(), []))
    for number in (1, 2):
        folder.mkdir(exist_ok=True)
        (folder / "report.json").write_text(f"measured {number}")
        await scenarios.run(spec_of("tight", 32, 20.0, "0.5.23"), folder)
    kept = [(tmp_path / f"tight-32-pages.{number}" / "report.json").read_text() for number in (1, 2)]
    assert kept == ["measured 1", "measured 2"]


def test_what_is_not_there_or_empty_is_not_set_aside(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    set_aside(tmp_path / "empty")
    set_aside(tmp_path / "none")
    assert list(tmp_path.iterdir()) == [tmp_path / "empty"]
