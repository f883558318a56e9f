from __future__ import annotations

import json
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from service.engine.install import pip as pip_module
from service.engine.install.pip import Candidate, Pip, run_logged
from service.errors import InstallFailed
from tests.engine.interpreters import script

REPORT = {
    "environment": {"python_version": "3.11"},
    "install": [{"metadata": {"name": "sglang", "version": "0.5.18", "requires_dist": ["torch==2.13.0"]}}],
}


def silent(_: str) -> None:
    pass


def test_failure_is_told_with_the_last_error_and_where_the_log_is(tmp_path: Path) -> None:
    log = tmp_path / "pip.log"
    broken = script(
        tmp_path / "python", "echo collecting; echo 'ERROR: no matching distribution' >&2; echo '[notice] new'; exit 1"
    )
    with pytest.raises(InstallFailed, match="ended with code 1") as caught:
        Pip(broken, log, silent).install("sglang==0.0.1")
    why, where = str(caught.value).splitlines()
    assert why == "ERROR: no matching distribution"
    assert where.endswith(str(log))


def test_failure_tells_nothing_of_commands_before(tmp_path: Path) -> None:
    run_logged(["/bin/echo", "all went well"], tmp_path / "log", silent)
    with pytest.raises(InstallFailed) as caught:
        run_logged(["/bin/sh", "-c", "echo; echo broken; exit 2"], tmp_path / "log", silent)
    assert "all went well" not in str(caught.value)
    assert str(caught.value).startswith("broken\n")


def test_endless_line_is_shortened_to_its_ends(tmp_path: Path) -> None:
    line = f"from versions: 0.1.3, {'0.2.0, ' * 200}0.5.23)"
    with pytest.raises(InstallFailed) as caught:
        run_logged(["/bin/sh", "-c", f"echo '{line}'; exit 1"], tmp_path / "log", silent)
    shown = str(caught.value).splitlines()[0]
    assert len(shown) < 200
    assert "from versions" in shown
    assert shown.endswith("0.5.23)")


def test_output_is_added_to_the_log_with_its_command(tmp_path: Path) -> None:
    log = tmp_path / "pip.log"
    run_logged(["/bin/echo", "one"], log, silent)
    run_logged(["/bin/echo", "two"], log, silent)
    assert log.read_text() == "\n$ /bin/echo one\none\n\n$ /bin/echo two\ntwo\n"


def test_a_long_command_says_now_and_then_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pip_module, "PROGRESS_SECONDS", 0.05)
    said: list[str] = []
    run_logged(["/bin/sh", "-c", "echo Downloading torch; sleep 0.3"], tmp_path / "log", said.append)
    assert len(said) > 1
    assert said[0].endswith("Downloading torch")
    assert not any("Downloading torch" in line for line in said[1:]), "pip's last line again would look like a fault"


def test_command_is_an_argument_list_that_no_shell_reads(tmp_path: Path) -> None:
    run_logged(["/bin/echo", "$(touch x); a b"], tmp_path / "log", silent)
    assert "\n$(touch x); a b\n" in (tmp_path / "log").read_text()


def test_choice_is_read_from_pips_own_report(tmp_path: Path) -> None:
    find_report = 'while [ "$1" != --report ]; do shift; done'
    python = script(tmp_path / "python", f'echo "$@"; {find_report}; echo \'{json.dumps(REPORT)}\' > "$2"')
    pip = Pip(python, tmp_path / "log", silent)
    assert pip.choose([Requirement("sglang==0.5.18")]) == [Candidate("sglang", "0.5.18", ("torch==2.13.0",))]
    assert pip.markers == {"python_version": "3.11"}
    assert "--dry-run --no-deps --ignore-installed" in (tmp_path / "log").read_text()
