"""What a simulated engine is: no SGLang, but a process that decides with the project's model of its scheduler.

The engine's process reads its settings through this as well, so it imports little. A verdict on a simulated engine
says nothing of a release of SGLang, so its profile is `simulated`, its version is marked, and it is never chosen by
default.
"""

from __future__ import annotations

import enum
import json
import signal
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from packaging.version import InvalidVersion, Version

from loadgen.sglang.releases import rules_for

SIMULATION_VARIABLE = "LASTPAGE_SIMULATION"
SIMULATED_ENGINE = "simulated"
"""The engine that is known without being added. `simulated-0.5.18` is the same with the rules of that release."""

NEWEST_RELEASE = rules_for(None).release
_FIRST_WITH_CLAMP = Version("0.5.19")
_MARK = "+simulated"
_MOST_SCALE = 100_000.0
_MOST_NUMBER = 1e9
_EVENTS_EXAMPLE = '"events": [{"event": "crash", "step": 350}]'


class Event(str, enum.Enum):
    """What can be planted in a simulated engine."""

    CRASH = "crash"  # an exception in the scheduler, with a traceback in the log, then the slow death of SGLang
    SIGNAL = "signal"  # its process is ended by a signal at once
    HANG = "hang"  # the scheduler stops; HTTP goes on
    SILENCE = "silence"  # nothing answers on the port any more, the process lives
    BOOT_FAILURE = "boot_failure"  # it ends before it serves
    WRONG_OUTPUT = "wrong_output"  # from here on tokens of answers are wrong now and then
    STARVATION = "starvation"  # one request is put aside and never served, while others are


@dataclass(frozen=True)
class PlantedEvent:
    """Something that goes wrong.

    Attributes:
        event: what.
        step: at which decode step since boot; 0 for a boot failure.
        signal: number of the signal that ends it, where one does.
    """

    event: Event
    step: int = 0
    signal: int = 9

    def __post_init__(self) -> None:
        if self.step < 0:
            raise ValueError(f"step = {self.step} is below 0; decode steps are counted from 1")
        if self.signal not in signal.valid_signals():
            raise ValueError(f"signal = {self.signal} is no signal; write its number, as 9 for SIGKILL")


@dataclass(frozen=True)
class Simulation:
    """How an engine is simulated.

    Attributes:
        release: the release of SGLang whose rules its scheduler follows.
        time_scale: simulated seconds in a second of the machine's, for the engine and for the run on it.
        step_seconds: simulated seconds that a decode step takes.
        prefill_token_seconds: simulated seconds that a prefill takes for each of its tokens.
        dying_seconds: simulated seconds that its process outlives an exception in its scheduler.
        events: what goes wrong.
    """

    release: str = NEWEST_RELEASE
    time_scale: float = 60.0
    step_seconds: float = 0.02
    prefill_token_seconds: float = 0.00002
    dying_seconds: float = 5.0
    events: tuple[PlantedEvent, ...] = ()

    def __post_init__(self) -> None:
        try:
            release = Version(self.release)
        except (InvalidVersion, ValueError):
            raise ValueError(f"release = {self.release!r} is no version; write one as in {NEWEST_RELEASE}") from None
        if release.local is not None or str(release) != self.release:
            raise ValueError(f"release = {self.release!r}: write it as {release.public}")
        if not 0 < self.time_scale <= _MOST_SCALE:
            raise ValueError(f"time_scale = {self.time_scale} is not above 0, and at most {_MOST_SCALE:,.0f}")
        for name in ("step_seconds", "prefill_token_seconds", "dying_seconds"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} = {getattr(self, name)} is below 0")

    @property
    def clamp(self) -> bool:
        """Whether the release's allocator has the clamp: from 0.5.19 on (SGLang's pull request 35727)."""
        return Version(self.release) >= _FIRST_WITH_CLAMP

    @property
    def version(self) -> str:
        """The version that is told of the engine: marked, so that it cannot be taken for the release itself."""
        return f"{self.release}{_MARK}"

    @property
    def environment(self) -> dict[str, str]:
        """The variable from which `from_json` makes the same settings again."""
        return {SIMULATION_VARIABLE: json.dumps(asdict(self))}

    @classmethod
    def from_json(cls, text: str) -> Simulation:
        """
        Raises:
            ValueError: it is no JSON object, or has a setting that there is not, or one with a value that is not
                allowed.
        """
        try:
            fields = json.loads(text)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        if not isinstance(fields, Mapping):
            raise ValueError('write a JSON object, as in {"time_scale": 60}')
        return cls.of(fields)

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Simulation:
        """See `from_json`."""
        known = cls.__dataclass_fields__
        unknown = sorted(fields.keys() - known.keys())
        if unknown:
            raise ValueError(f"{unknown[0]!r} is no setting of a simulated engine; there are {', '.join(known)}")
        events = fields.get("events", ())
        if not isinstance(events, (list, tuple)):
            raise ValueError(f"events = {events!r} is no list; write {_EVENTS_EXAMPLE}")
        numbers = {name: _number(name, fields[name]) for name in fields.keys() - {"events", "release"}}
        release = str(fields.get("release", NEWEST_RELEASE))
        return cls(release=release, events=tuple(map(_planted, events)), **numbers)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= _MOST_NUMBER:
        shown = repr(value) if not isinstance(value, int) or value.bit_length() < 64 else "a number of many digits"
        raise ValueError(f"{name} = {shown} is no number that can be used; write one, as in {{{json.dumps(name)}: 2}}")
    return float(value)


def _planted(fields: Any) -> PlantedEvent:
    if not isinstance(fields, Mapping) or not {"event"} <= fields.keys() <= PlantedEvent.__dataclass_fields__.keys():
        raise ValueError(f"{fields!r} in events is no planted event; write {_EVENTS_EXAMPLE}")
    if fields["event"] not in [event.value for event in Event]:
        allowed = ", ".join(event.value for event in Event)
        raise ValueError(f"{fields['event']!r} is no event; allowed: {allowed}")
    for name in fields.keys() - {"event"}:
        if isinstance(fields[name], bool) or not isinstance(fields[name], int):
            raise ValueError(f"{name} = {fields[name]!r} is no whole number; write {_EVENTS_EXAMPLE}")
    return PlantedEvent(**{**fields, "event": Event(fields["event"])})
