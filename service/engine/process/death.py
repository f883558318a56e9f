"""How an engine died: which of its processes went first, and how."""

from __future__ import annotations

import signal
from dataclasses import dataclass


@dataclass(frozen=True)
class EngineDeath:
    """The first of an engine's processes to go, which takes the engine with it.

    Attributes:
        role: "engine" (the process that was launched), "scheduler", "detokenizer", ... or "warden".
        code: exit code; None when a signal ended it, or when its status could not be seen.
        signal: signal number; None when it exited, or when its status could not be seen.
        noticed_ns: CLOCK_MONOTONIC, nanoseconds.
    """

    role: str
    pid: int
    code: int | None
    signal: int | None
    noticed_ns: int

    @property
    def may_have_followed(self) -> bool:
        """Whether it may be the launched process's doing, if it is a worker's: these ask for SIGKILL at its death."""
        return self.code is None and self.signal in (None, signal.SIGKILL)

    @property
    def is_told(self) -> bool:
        """Whether it is known how it died."""
        return self.code is not None or self.signal is not None

    @classmethod
    def of(cls, role: str, pid: int, returncode: int, noticed_ns: int) -> EngineDeath:
        """From a return code as `subprocess` gives it: negative for a signal."""
        code, number = (returncode, None) if returncode >= 0 else (None, -returncode)
        return cls(role, pid, code, number, noticed_ns)

    def __str__(self) -> str:
        if self.signal is not None:
            return f"{self.role} (pid {self.pid}) was ended by {signal_name(self.signal)}"
        if self.code is not None:
            return f"{self.role} (pid {self.pid}) exited with code {self.code}"
        return f"{self.role} (pid {self.pid}) is gone"


def signal_name(number: int) -> str:
    """`SIGKILL` for 9, and so on; `signal N` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def first_death(worker: EngineDeath | None, engine: EngineDeath | None) -> EngineDeath | None:
    """Which of two deaths that were seen in the same look came first: a worker's or the launched process's."""
    if worker is None or engine is None:
        return worker or engine
    if not worker.is_told:
        return engine
    # SGLang ends itself by SIGKILL when a worker has failed.
    return engine if worker.may_have_followed and engine.signal != signal.SIGKILL else worker
