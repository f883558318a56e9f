from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.switch import ORDER, TURN_STEPS, Switch

ROUND_STEPS = TURN_STEPS * len(ORDER)
ON, OFF = "on" * TURN_STEPS, "of" * TURN_STEPS


class Server:
    """Decode steps and prefills through a switch; `seen` has a word for each step of how the allocator was reached."""

    def __init__(self, folder: Path) -> None:
        self.records = folder / "records.jsonl"
        self.seen = ""
        self._switch = Switch(self.records)
        self._hooked = self._hook()

    def _hook(self) -> Callable[..., Any]:
        def allocate(rows: int) -> int:
            self.seen += "" if self.seen.endswith("o") else "of"
            return rows

        @functools.wraps(allocate)
        def probed(rows: int) -> int:
            self.seen += "o"
            allocate(rows)
            self.seen += "n"
            return rows

        return probed

    def decode(self, steps: int) -> None:
        for rows in range(steps):
            assert self._switch.around_alloc_decode(self._hooked, rows) == rows

    def prefill(self) -> None:
        assert self._switch.around_alloc_extend(lambda tokens: tokens, 7) == 7

    def rounds(self) -> list[Any]:
        return [json.loads(line) for line in self.records.read_text().splitlines()]


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


def test_turns_alternate_and_each_side_begins_every_other_round(server: Server) -> None:
    server.decode(TURN_STEPS + 2 * ROUND_STEPS)
    assert server.seen == ON + (ON + OFF + OFF + ON) + (OFF + ON + ON + OFF)


def test_round_is_written_when_its_last_step_is_over_with_both_sides(server: Server) -> None:
    server.decode(TURN_STEPS + ROUND_STEPS)
    assert server.rounds() == []
    server.decode(1)
    (record,) = server.rounds()
    assert all(record[side][clock] >= 0 for side in ("with", "without") for clock in ("wall", "cpu"))
    assert record["with"]["wall"] > 0 and record["without"]["wall"] > 0


def test_prefill_costs_the_round_it_falls_into_and_the_turn_after_it(server: Server) -> None:
    server.decode(TURN_STEPS + ROUND_STEPS - 1)
    server.prefill()
    server.seen = ""
    server.decode(TURN_STEPS + ROUND_STEPS + 1)
    assert server.seen[len(ON) :] == ON + OFF + OFF + ON + "of"
    assert len(server.rounds()) == 1
