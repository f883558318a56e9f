"""The check that runs in an engine's interpreter, with packages that stand in for torch and torch_npu."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from service.engine.overlay import copy_plugin

TORCH_WITH_NPU = """
class npu:
    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 2)
    get_device_name = staticmethod(lambda index: f"Ascend910B{index}")
"""


def ask(folder: Path, *arguments: str, **modules: str) -> dict[str, Any]:
    """Run the check as the controller does, or in another way, in an interpreter that also sees `modules`."""
    copy_plugin(folder)
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(source)
    command = [sys.executable, *(arguments or ("-m", "lastpage_plugin.check"))]
    ran = subprocess.run(command, env={"PYTHONPATH": str(folder)}, capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return answer


def test_missing_sglang_is_named(tmp_path: Path) -> None:
    answer = ask(tmp_path, torch="__version__ = '2.14.1'")
    assert answer["problem"] == f"there is no sglang in the environment of {sys.executable}"
    assert (answer["torch"], answer["clamp"]) == ("2.14.1", None)


def test_machine_without_torch_npu_has_no_npu(tmp_path: Path) -> None:
    npu = ask(tmp_path)["npu"]
    assert npu == {"torch_npu": None, "available": False, "count": 0, "name": None, "problem": None}


def test_npu_is_told_with_its_count_and_name(tmp_path: Path) -> None:
    npu = ask(tmp_path, torch=TORCH_WITH_NPU, torch_npu="")["npu"]
    assert (npu["available"], npu["count"], npu["name"]) == (True, 2, "Ascend910B0")


def test_torch_npu_that_breaks_is_told_and_is_no_npu(tmp_path: Path) -> None:
    npu = ask(tmp_path, torch=TORCH_WITH_NPU, torch_npu="raise ImportError('libascendcl.so is missing')")["npu"]
    assert (npu["available"], npu["problem"]) == (False, "ImportError: libascendcl.so is missing")


@pytest.mark.parametrize(("available", "problem"), [(False, "torch_npu unknown sees no NPU"), (True, None)])
def test_sglang_for_npus_that_sees_none_is_not_run_on_the_cpu(
    tmp_path: Path, available: bool, problem: str | None
) -> None:
    """A container without its devices would rehearse, and pass."""
    torch = TORCH_WITH_NPU.replace("lambda: True", f"lambda: {available}")
    allocator = "import lastpage_plugin.check as check; check._judge_allocator = lambda: (True, []); check.main()"
    answer = ask(tmp_path, "-c", allocator, torch=torch, torch_npu="", sglang="")
    assert (answer["problem"] or "").startswith(problem or "") and (answer["problem"] is None) == available
    assert answer["clamp"] is True


def test_what_is_printed_on_the_way_does_not_hide_the_answer(tmp_path: Path) -> None:
    answer = ask(tmp_path, torch="print('a banner without an end', end='')", sglang="")
    assert answer["problem"] is not None
