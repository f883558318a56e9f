"""Modules that stand in for torch and SGLang, as far as the plugin touches them."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest


def module(name: str, **attributes: Any) -> types.ModuleType:
    made = types.ModuleType(name)
    made.__dict__.update(attributes)
    made.__path__ = []
    return made


def put(monkeypatch: pytest.MonkeyPatch, name: str, **attributes: Any) -> types.ModuleType:
    """Make `import name` give a module with these attributes, for the time of a test; its parents too, if need be."""
    parent, _, last = name.rpartition(".")
    made = module(name, **attributes)
    monkeypatch.setitem(sys.modules, name, made)
    if parent:
        package = sys.modules.get(parent) or put(monkeypatch, parent)
        monkeypatch.setattr(package, last, made, raising=False)
    return made


def put_torch(monkeypatch: pytest.MonkeyPatch, *, rank: int | None = None) -> None:
    """torch, with a distributed group of which this process has a rank; without a group when None."""
    put(
        monkeypatch,
        "torch.distributed",
        is_available=lambda: True,
        is_initialized=lambda: rank is not None,
        get_rank=lambda: rank,
    )


class CpuTensor(list[int]):
    """A tensor that is on the CPU."""

    def tolist(self) -> list[int]:
        return list(self)

    def numel(self) -> int:
        return len(self)


class DeviceTensor:
    """A tensor that is on the device: whoever looks into it would wait for the device."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"the probe looked at a device tensor: {name}")
