"""What a scenario is: from what was seen of the server to the requests to send next.

No I/O, no clock, and no chance but the seed.
"""

from __future__ import annotations

import abc
import enum
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from ..requests.wave import Wave
from ..sglang.pages import Pool
from ..sglang.server import EngineNeeds, ServerConfiguration
from ..sglang.steps import ObservedStep

RESTARTS_KEPT = 1000


@dataclass(frozen=True)
class Observation:
    """What is known when a wave is asked for.

    Attributes:
        elapsed: seconds since the load began.
        steps: the decode steps seen since the last wave was asked for, oldest first.
        open_requests: requests sent and not yet answered.
    """

    elapsed: float
    steps: Sequence[ObservedStep]
    open_requests: int


@dataclass(frozen=True)
class Misfit:
    """Why a scenario cannot work on a pool.

    Attributes:
        field: the run spec's field that is to blame, such as `engine.pool_pages`.
        value: what it is.
        message: what is wrong with it, and what is allowed.
    """

    field: str
    value: int | float | str | None
    message: str


@dataclass(frozen=True, kw_only=True)
class PoolBounds:
    """The pools that a scenario can work on, and what keeps it from working on others.

    Attributes:
        page_size: fewest tokens a page.
        page_too_small: what cannot be done with fewer, such as `too small to stagger requests in`.
        pages: fewest pages.
        pages_at_fault: what cannot be done with fewer or with more, such as `too few for requests to take turns`.
        most_pages: None where there can be any number.
    """

    page_size: int = 1
    page_too_small: str = ""
    pages: int = 1
    pages_at_fault: str = ""
    most_pages: int | None = None

    def misfits(self, scenario: str, pool: Pool) -> list[Misfit]:
        """Why the scenario of that name cannot work on a pool; empty when it can."""
        misfits = []
        if pool.page_size < self.page_size:
            message = f"{self.page_too_small}; {scenario} needs at least {self.page_size}"
            misfits.append(Misfit("engine.page_size", pool.page_size, message))
        if pool.pages < self.pages or (self.most_pages is not None and pool.pages > self.most_pages):
            allowed = f"at least {self.pages}"
            if self.most_pages is not None:
                allowed = f"from {self.pages} to {self.most_pages}"
            message = f"{self.pages_at_fault}; {scenario} needs {allowed}"
            misfits.append(Misfit("engine.pool_pages", pool.pages, message))
        return misfits


@dataclass(frozen=True)
class Restart:
    """A load that was begun anew.

    Attributes:
        elapsed: seconds since the load began.
        cause: one of few, without figures.
        reason: the same in one sentence, with figures.
    """

    elapsed: float
    cause: str
    reason: str


class Streamed(enum.Enum):
    """Which of a scenario's answers come as a stream. Only those have latencies that are measured."""

    NONE = "none"
    SOME = "some"
    ALL = "all"


class Restarts(list[Restart]):
    """The last restarts of a load; it stays small however long the load is.

    Attributes:
        causes: how often the load began anew, by cause; all of them.
    """

    def __init__(self, restarts: Iterable[Restart] = ()) -> None:
        super().__init__()
        self.causes: Counter[str] = Counter()
        for restart in restarts:
            self.append(restart)

    def append(self, restart: Restart) -> None:
        self.causes[restart.cause] += 1
        super().append(restart)
        del self[:-RESTARTS_KEPT]


class NoOptions(BaseModel):
    """Options of a scenario; every scenario refuses those that it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


OptionsT = TypeVar("OptionsT", bound=NoOptions)


class Scenario(abc.ABC, Generic[OptionsT]):
    """A way of making load. What is said of it anywhere comes from here, and from its module's docstring.

    Attributes:
        name: in lower case, as it stands in a spec.
        summary: what it does, in a line.
        is_default: whether it is the one of a spec that names none.
        expected_critical_share: the least share of decode steps that are critical when nothing disturbs it; None when
            it does not go for the edge in every step.
        targets_cells: whether it looks for cells of the edge that were not yet hit (`loadgen.coverage`), and so
            comes to most.
        follows: whether what it sends depends on the decode steps that were seen, and not on options and seed alone.
        streamed: which of its answers come as a stream.
        bounds: the pools that it can work on, as far as page size and pages alone tell.
        Options: of `load.options`.
        restarts: when and why the scenario gave up what it had built up, and began anew.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    is_default: ClassVar[bool] = False
    expected_critical_share: ClassVar[float | None] = None
    targets_cells: ClassVar[bool] = False
    follows: ClassVar[bool] = False
    streamed: ClassVar[Streamed] = Streamed.NONE
    bounds: ClassVar[PoolBounds] = PoolBounds()
    Options: ClassVar[type[Any]] = NoOptions

    def __init__(self, server: ServerConfiguration, options: OptionsT, seed: int) -> None:
        self.server = server
        self.options = options
        self.seed = seed
        self.restarts = Restarts()

    @classmethod
    def faults(cls, pool: Pool, options: OptionsT) -> list[Misfit]:
        """Why the scenario cannot work on this pool; empty when it can."""
        return cls.bounds.misfits(cls.name, pool)

    @classmethod
    def launch_faults(cls, pool: Pool, options: OptionsT) -> list[Misfit]:
        """Of the faults those that also concern waves of its making that are sent again (`waves`)."""
        return cls.faults(pool, options)

    @classmethod
    def engine_needs(cls, pool: Pool, options: OptionsT) -> EngineNeeds:
        return EngineNeeds()

    @classmethod
    def streams(cls, options: OptionsT) -> bool:
        """Whether with these options some of its answers come as a stream."""
        return cls.streamed is not Streamed.NONE

    @classmethod
    @abc.abstractmethod
    def longest_request(cls, pool: Pool, options: OptionsT) -> int:
        """Tokens of the longest request, prompt and answer, that the scenario may send."""

    @property
    def finished(self) -> bool:
        """Whether it sends nothing more, whatever is seen. The load then ends with the last answer."""
        return False

    @abc.abstractmethod
    def next_wave(self, seen: Observation) -> Wave:
        """The requests to send now; an empty wave when there is nothing to send."""
