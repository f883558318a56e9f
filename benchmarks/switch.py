"""Turns the probe on and off inside a running SGLang, every few decode steps, and takes the time of each turn.

A plugin of its own, beside the project's and around it: it calls the allocator either through the probe's hook or past
it. Everything else is the same in both cases, the process included. Standard library only.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RECORDS_VARIABLE = "LASTPAGE_SWITCH_RECORDS"
ALLOCATOR = "sglang.srt.hardware_backend.npu.allocator_npu.NPUPagedTokenToKVPoolAllocator"

TURN_STEPS = 4
# A machine that speeds up or slows down favours neither side, and of two rounds each side begins one.
ORDER = (True, False, False, True)


class Switch:
    """Hooks, and what they have measured: one JSON line a round of ORDER, with seconds a decode step of each side."""

    def __init__(self, records: Path) -> None:
        self._records = records.open("a", buffering=1)
        self._rounds = 0
        self._probed = True
        self._began = (0.0, 0.0)
        self._settle()

    def around_alloc_decode(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._steps_left == 0:
            self._next_turn()
        self._steps_left -= 1
        return (original if self._probed else past_probe(original))(*args, **kwargs)

    def around_alloc_extend(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._settle()
        return original(*args, **kwargs)

    def _settle(self) -> None:
        """After a prefill, before which the server may have waited for work: the round is lost, and so is a turn."""
        self._turns: list[tuple[float, float]] | None = None
        self._steps_left = TURN_STEPS

    def _next_turn(self) -> None:
        """Called when a step is about to be made: a turn lasts from its first step to the first one of the next."""
        ended = (time.perf_counter(), time.process_time())
        if self._turns is None:
            self._turns = []
        else:
            self._turns.append((ended[0] - self._began[0], ended[1] - self._began[1]))
        if len(self._turns) == len(ORDER):
            self._write(self._turns)
            self._turns = []
        self._probed = self._is_probed(len(self._turns))
        self._steps_left = TURN_STEPS
        self._began = (time.perf_counter(), time.process_time())

    def _is_probed(self, turn: int) -> bool:
        return ORDER[turn] is (self._rounds % 2 == 0)

    def _write(self, turns: list[tuple[float, float]]) -> None:
        steps = TURN_STEPS * len(ORDER) // 2
        record = {}
        for name, probed in (("with", True), ("without", False)):
            own = [taken for turn, taken in enumerate(turns) if self._is_probed(turn) is probed]
            record[name] = {"wall": sum(wall for wall, _ in own) / steps, "cpu": sum(cpu for _, cpu in own) / steps}
        self._records.write(json.dumps(record) + "\n")
        self._rounds += 1


def past_probe(hooked: Callable[..., Any]) -> Callable[..., Any]:
    """The allocator's own method, which SGLang's hook registry keeps behind the probe's hook."""
    inner: Callable[..., Any] = hooked.__wrapped__  # type: ignore[attr-defined]
    return inner


def register() -> None:
    """Called by SGLang after the project's own plugin, which comes first on the path, and so ends up inside."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    switch = Switch(Path(os.environ[RECORDS_VARIABLE]))
    for method, hook in (("alloc_decode", switch.around_alloc_decode), ("alloc_extend", switch.around_alloc_extend)):
        HookRegistry.register(f"{ALLOCATOR}.{method}", hook, HookType.AROUND)
