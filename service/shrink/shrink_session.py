"""One shrinking: which loads are tried, what is told of each, and the best so far, which is always on disk."""

from __future__ import annotations

import enum
import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import anyio.to_thread

from loadgen.scenarios.waves.scenario import WavesOptions
from loadgen.sglang.pages import Pool
from loadgen.sglang.releases import NEWEST
from loadgen.shrink import AS_IT_IS, Case, Proposal, search
from loadgen.shrink.on_model import ServerModel
from service.execution.repro import CRASH_LABEL, REPRO_THRESHOLDS, options_of
from service.files import write_atomically
from service.shrink.trials import Attempt
from service.spec.spec import RunSpec
from service.spec.yaml_text import dump_yaml

SHRUNK_FILE = "shrunk.yaml"
TRIALS_FILE = "trials.jsonl"
PATIENCE = 12
"""Trials of one move that may fail before the next has its turn: each takes a second or two."""

_MODEL_SECONDS = 30.0
_CONFIRMATIONS = 3
_LONGEST_NAME = 120
_CONFIRMED = "once more"


class Trials(Protocol):
    """Whoever can say what becomes of a load; `EngineTrials` sends it to a real engine."""

    async def attempt(self, case: Case) -> Attempt: ...


class End(enum.Enum):
    """How a shrinking ended."""

    CONFIRMED = enum.auto()  # the shortest crashed once more
    FLAKY = enum.auto()  # the shortest did not crash once more
    NO_CRASH = enum.auto()  # nothing crashed in the way that was asked for


class ShrinkSession:
    """Shrinks one repro.

    Args:
        repro: a run spec of the scenario `waves`.
        tell: called with each line for people.
        budget_seconds: no trial begins later than this; the last confirmation may.
        model: foresees which loads are worth a trial; None where no model fits the engine.

    Attributes:
        original: the repro's load.
        kind: the kind of crash that is looked for; None until it is known.
        best: the shortest load that has crashed in that way.
        trials: how many there were.
        boots: how many engines were booted for them.
    """

    def __init__(
        self,
        repro: RunSpec,
        trials: Trials,
        folder: Path,
        tell: Callable[[str], None],
        *,
        budget_seconds: float,
        model: ServerModel | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._repro = repro
        self._options = WavesOptions.model_validate(repro.load.options)
        self._trials = trials
        self._folder = folder
        self._tell = tell
        self._model = model
        self._clock = clock
        self._deadline = clock() + budget_seconds
        self.original = Case.of(Pool(repro.engine.page_size, repro.engine.pool_pages), self._options)
        self.kind = repro.labels.get(CRASH_LABEL)
        self.best: Case | None = None
        self.trials = 0
        self.boots = 0

    async def run(self) -> End:
        """Shrink, and try the result once more.

        Raises:
            EngineError: an engine could not be started. What was found so far is kept.
            OSError: the folder cannot be written.
        """
        likely = await self._foreseen()
        known = False
        if self.kind is None:
            # What to look for shows in the first crash.
            known = await self._try(self.original, AS_IT_IS)
            if not known:
                return End.NO_CRASH
        await self._search(likely, known)
        if self.best is None:
            return End.NO_CRASH
        return await self._confirm(self.best)

    async def _foreseen(self) -> list[Case]:
        """What the model finds; it orders the trials and proposes one, and only an engine's crash counts."""
        if self._model is None:
            self._tell("no model of this engine's scheduler: loads are tried in their own order")
            return []
        found = await anyio.to_thread.run_sync(self._model.shortest, self.original, _MODEL_SECONDS)
        if found is None:
            self._tell("the model of the scheduler foresees no critical step: it is no help")
            self._model = None
            return []
        self._tell(f"the model of the scheduler foresees a critical step with {found}")
        return [found] if found.size < self.original.size else []

    async def _search(self, likely: list[Case], known: bool) -> None:
        foresee = self._model.foresees if self._model is not None else None
        rules = self._model.rules if self._model is not None else NEWEST
        proposals = search(self.original, likely=likely, known=known, foresee=foresee, patience=PATIENCE, rules=rules)
        crashed: bool | None = None

        def following() -> Proposal | None:
            try:
                return next(proposals) if crashed is None else proposals.send(crashed)
            except StopIteration:
                return None

        # The model may think for a while.
        while (proposal := await anyio.to_thread.run_sync(following)) is not None:
            if self._clock() >= self._deadline:
                self._tell("the budget is used up; what has crashed so far stays")
                return
            crashed = await self._try(proposal.case, proposal.move)

    async def _confirm(self, case: Case) -> End:
        for _ in range(_CONFIRMATIONS):
            if await self._try(case, _CONFIRMED):
                return End.CONFIRMED
        return End.FLAKY

    async def _try(self, case: Case, move: str) -> bool:
        """Try a load, tell of it, and keep it if it is the best."""
        attempt = await self._trials.attempt(case)
        self.trials += 1
        self.boots += attempt.boot_seconds is not None
        kind = attempt.crash.kind.value if attempt.crash is not None else None
        if self.kind is None:
            self.kind = kind
        crashed = kind is not None and kind == self.kind
        self._tell(_line(self.trials, case, move, attempt, crashed))
        self._record(case, move, attempt, kind)
        if crashed and (self.best is None or case.size < self.best.size):
            self.best = case
            write_atomically(self._folder / SHRUNK_FILE, dump_yaml(self._shrunk(case)))
        return crashed

    def _record(self, case: Case, move: str, attempt: Attempt, kind: str | None) -> None:
        line: dict[str, Any] = {
            "trial": self.trials,
            "move": move,
            **case.size._asdict(),
            "crash": kind,
            **{name: value for name, value in asdict(attempt).items() if name != "crash"},
        }
        with (self._folder / TRIALS_FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _shrunk(self, case: Case) -> RunSpec:
        """The repro with this load, and with what a run of so short a one can hold."""
        options = options_of(case.written(), self._options.made_by, self._options.made_with)
        name = f"shrunk {self._repro.name}" if self._repro.name else "shrunk"
        return self._repro.model_copy(
            update={
                "name": name[:_LONGEST_NAME],
                "labels": {**self._repro.labels, CRASH_LABEL: self.kind},
                "load": self._repro.load.model_copy(update={"options": options, "until_coverage": None}),
                "thresholds": REPRO_THRESHOLDS,
            }
        )


def _line(number: int, case: Case, move: str, attempt: Attempt, crashed: bool) -> str:
    boot = f", engine booted in {attempt.boot_seconds:.0f} s" if attempt.boot_seconds is not None else ""
    result = "survives"
    if attempt.crash is not None:
        result = "CRASHES" if crashed else f"crashes otherwise ({attempt.crash.kind.value})"
    return f"trial {number:<3} {result:<8}  {case} ({move}; {attempt.seconds:.1f} s{boot})"
