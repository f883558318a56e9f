"""`python -m lastpage_plugin.check`, in an engine's interpreter: one JSON line that says what the engine is.

Keys: `sglang` and `torch` (versions, null when missing), `clamp` (whether `alloc_decode` has it, null when it could not
be judged), `npu` (`torch_npu`, `available`, `count`, `name`), `problem` (what stands in the way of a run, or null) and
`files` (what the answer was read from).
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import sys
from typing import Any


def main() -> None:
    """Print the answer."""
    # SGLang and torch_npu may print while they are imported; whatever comes before the last line is theirs.
    print("\n" + json.dumps(describe()), flush=True)


def describe() -> dict[str, Any]:
    """What this interpreter's SGLang is, as far as can be told. Never raises."""
    answer: dict[str, Any] = {
        "sglang": _version("sglang"),
        "torch": _version("torch"),
        "clamp": None,
        "npu": describe_npu(),
        "problem": None,
        "files": [],
    }
    try:
        for name in ("torch", "sglang"):
            if importlib.util.find_spec(name) is None:
                answer["problem"] = f"there is no {name} in the environment of {sys.executable}"
                return answer
            module = importlib.import_module(name)
            answer[name] = getattr(module, "__version__", answer[name])
        answer["clamp"], answer["files"] = _judge_allocator()
    except Exception as error:
        answer["problem"] = f"{type(error).__name__}: {error}"
    answer["problem"] = answer["problem"] or _npu_out_of_sight(answer["npu"])
    return answer


def _npu_out_of_sight(npu: dict[str, Any]) -> str | None:
    """Why an SGLang that was built for NPUs cannot be used: on the CPU it would show nothing that was asked for."""
    if npu["torch_npu"] is None or npu["available"]:
        return None
    why = npu["problem"] or "are the devices there, and may this user open them?"
    return f"torch_npu {npu['torch_npu']} sees no NPU: {why}"


def describe_npu() -> dict[str, Any]:
    """The NPUs that torch_npu sees here. `problem` says why torch_npu could not be asked."""
    answer: dict[str, Any] = {"torch_npu": None, "available": False, "count": 0, "name": None, "problem": None}
    if importlib.util.find_spec("torch_npu") is None:
        return answer
    answer["torch_npu"] = _version("torch_npu") or "unknown"
    try:
        importlib.import_module("torch_npu")
        npu = importlib.import_module("torch").npu
        answer["available"] = bool(npu.is_available())
        answer["count"] = int(npu.device_count()) if answer["available"] else 0
        answer["name"] = str(npu.get_device_name(0)) if answer["count"] else None
    except Exception as error:
        answer["problem"] = f"{type(error).__name__}: {error}"
    return answer


def _judge_allocator() -> tuple[bool, list[str]]:
    from .variants import has_clamp, load_installed_class

    installed = load_installed_class()
    source = sys.modules[installed.__module__].__file__
    return has_clamp(installed), [source] if source else []


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
