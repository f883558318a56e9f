"""The clock of a run: the machine's own, or one that goes faster where the engine is simulated.

Both sides of a simulated run, the controller and the engine's process, make the same time of the machine's monotonic
clock, by the same factor. So their times can be compared, and nothing has to pass between them. A real engine has the
real clock, always.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

# To look at something more often than this, by the machine's clock, costs more than is learnt.
_SHORTEST_SLEEP_SECONDS = 0.01
# What a busy machine may take for work that takes no time in a simulation: making requests, waking up.
_WORK_SECONDS = 1.0


@dataclass(frozen=True)
class Clock:
    """A clock that only goes forward.

    Attributes:
        scale: seconds of this clock in a second of the machine's.
    """

    scale: float = 1.0

    def now(self) -> float:
        """Seconds."""
        return time.monotonic() * self.scale

    def now_ns(self) -> int:
        """Nanoseconds: the recorder's clock."""
        return self.at(time.monotonic_ns())

    def at(self, machine_ns: int) -> int:
        """What this clock showed when the machine's monotonic clock showed so many nanoseconds."""
        return machine_ns if self.scale == 1 else int(machine_ns * self.scale)

    def machine_seconds(self, seconds: float) -> float:
        """How long so many seconds of this clock are by the machine's."""
        return seconds / self.scale

    def patience(self, seconds: float, share: float = 1.0) -> float:
        """How long a server may do nothing that was to do something within so many seconds.

        Where time is made faster than the machine's, the machine's own work takes up much of it: then longer.

        Args:
            share: of the time that the machine is given for its work.
        """
        return seconds if self.scale <= 1 else max(seconds, share * _WORK_SECONDS * self.scale)

    async def sleep(self, seconds: float, shortest: float = _SHORTEST_SLEEP_SECONDS) -> None:
        """Sleep for so many seconds of this clock; a little longer where that is hardly any time for the machine.

        Args:
            shortest: what is worth sleeping for, by the machine's clock, where as much was asked for.
        """
        import anyio  # the engine's process, which boots in no time, never sleeps by this

        await anyio.sleep(max(seconds / self.scale, min(seconds, shortest)))


REAL = Clock()
