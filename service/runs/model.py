"""What a run is and what it found: values only, as the API, the store and `report.json` show them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field, computed_field, create_model

from loadgen.checks.findings import FindingKind
from loadgen.statistics.histogram import Counts
from service.engine.crash.crash import Crash
from service.engine.simulated import Simulation
from service.measures import MEASURES
from service.plugin.measures import RECORDED, Counters
from service.plugin.settings import Allocator, Profile
from service.runs.coverage import EdgeCoverage
from service.runs.server_info import ServerInfo
from service.runs.value import Value
from service.spec.spec import RunSpec

SUCCESSFUL_OUTCOME = "done"
CANCELLED_OUTCOME = "cancelled"  # given up by the driver itself, when a run ends: no fault of the engine
HUNG_UP_OUTCOME = "hung_up"  # given up by the client, as the scenario had planned it


class RunStatus(str, enum.Enum):
    """Where a run is in its life; `service.runs.lifecycle` says which step may follow which."""

    CREATED = "created"  # accepted, waiting for its turn
    LAUNCHING = "launching"  # the engine is starting
    RUNNING = "running"  # load is on the engine
    DRAINING = "draining"  # no new load; open requests end, the engine stops
    FINISHED = "finished"  # it has a verdict on what was measured, a crash included
    FAILED_TO_START = "failed_to_start"  # the engine never became ready
    CANCELLED = "cancelled"  # somebody asked for it to stop
    INTERRUPTED = "interrupted"  # the controller stopped

    @property
    def ended(self) -> bool:
        return self in _ENDED


_ENDED = frozenset({RunStatus.FINISHED, RunStatus.FAILED_TO_START, RunStatus.CANCELLED, RunStatus.INTERRUPTED})


class Verdict(str, enum.Enum):
    """What a run has shown."""

    PASS = "pass"  # the pool was driven to exhaustion often enough, and no threshold was broken
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"  # the edge was not reached often enough: nothing is shown


class Percentiles(Value):
    """A distribution of times, in milliseconds."""

    p50: float
    p90: float
    p99: float
    max: float


class Latencies(Value):
    """Latencies of the requests that ended well, in milliseconds."""

    ttft_ms: Percentiles = Field(description="From sending a request to its first token.")
    e2e_ms: Percentiles = Field(
        description="From sending a request to its end; of one that is not streamed, as the server tells it."
    )


class WitnessMeasures(Value):
    """Requests under load whose answers are held against what they are without pressure."""

    share: float = Field(description="Of all requests, as the spec asks for.")
    off: str | None = Field(default=None, description="Why there are none; null when there are.")
    noise: float | None = Field(
        default=None, description="Most that a token's log-probability changed with the batch, without pressure; nats."
    )
    margin: float | None = Field(default=None, description="Tokens that are closer than this are a near tie; nats.")
    answered: int = Field(default=0, description="Answers of witnesses.")
    compared: int = Field(default=0, description="Of these, those held against the answer without pressure.")
    not_compared: int = Field(default=0, description="Of these, the others: too many, or the engine was gone.")
    near_ties: int = Field(default=0, description="Compared answers that differ where two tokens were as good.")
    disagreeing: int = Field(default=0, description="Prompts to which witnesses had different answers.")


def _measured(name: str, **default: Any) -> Any:
    """A field of `Measures`, described by the registry."""
    return Field(description=MEASURES[name].help, **default)


# A field for each counter of the registry; the type checker knows them from there.
if TYPE_CHECKING:

    class _Counted(BaseModel, Counters, frozen=True):
        pass
else:
    _Counted = create_model(
        "_Counted", __base__=Value, **{each.name: (int, _measured(each.name, default=0)) for each in RECORDED}
    )


class Measures(_Counted, frozen=True):
    """What was measured under load, what the recorder counts included; a share is of decode steps, from 0 to 1."""

    steps_before_load: int = _measured("steps_before_load", default=0)
    load_restarts: int = _measured("load_restarts", default=0)
    restart_reasons: dict[str, int] = _measured("restart_reasons", default_factory=dict)
    surplus: dict[str, int] = _measured("surplus", default_factory=dict)
    coverage: EdgeCoverage | None = _measured("coverage", default=None)
    requests: dict[str, int] = _measured("requests", default_factory=dict)
    failures: dict[str, int] = _measured("failures", default_factory=dict)
    latencies: Latencies | None = _measured("latencies", default=None)
    crashes: int = _measured("crashes", default=0)
    findings: int = _measured("findings", default=0)
    waived_findings: int = _measured("waived_findings", default=0)
    witnesses: WitnessMeasures | None = _measured("witnesses", default=None)
    seconds_under_load: float = _measured("seconds_under_load", default=0.0)
    ready_to_first_critical_seconds: float | None = _measured("ready_to_first_critical_seconds", default=None)

    @computed_field(description=MEASURES["tight_not_critical_steps"].help)  # type: ignore[prop-decorator]
    @property
    def tight_not_critical_steps(self) -> int:
        return self.tight_steps - self.critical_steps

    @computed_field(description=MEASURES["crossing_share"].help)  # type: ignore[prop-decorator]
    @property
    def crossing_share(self) -> float:
        return self._share(self.crossing_steps)

    @computed_field(description=MEASURES["tight_share"].help)  # type: ignore[prop-decorator]
    @property
    def tight_share(self) -> float:
        return self._share(self.tight_steps)

    @computed_field(description=MEASURES["critical_share"].help)  # type: ignore[prop-decorator]
    @property
    def critical_share(self) -> float:
        return self._share(self.critical_steps)

    @computed_field(description=MEASURES["failed_requests"].help)  # type: ignore[prop-decorator]
    @property
    def failed_requests(self) -> int:
        excused = (SUCCESSFUL_OUTCOME, HUNG_UP_OUTCOME, CANCELLED_OUTCOME)
        return sum(count for outcome, count in self.requests.items() if outcome not in excused)

    @computed_field(description=MEASURES["closest_over"].help)  # type: ignore[prop-decorator]
    @property
    def closest_over(self) -> int | None:
        return min((over for over in map(int, self.surplus) if over > 0), default=None)

    @computed_field(description=MEASURES["closest_under"].help)  # type: ignore[prop-decorator]
    @property
    def closest_under(self) -> int | None:
        return min((-over for over in map(int, self.surplus) if over < 0), default=None)

    def _share(self, steps: int) -> float:
        return steps / self.decode_steps if self.decode_steps else 0.0


class Finding(Value):
    """What was found wrong with an engine that did not crash: the first of a kind and cause, and their number."""

    kind: FindingKind = Field(
        description="wrong_output: an answer is not what it is without pressure, or contradicts itself; starved: a "
        "request was accepted and got no token while others were served."
    )
    cause: str = Field(description="One of few sentences, without figures.")
    detail: str = Field(description="What was seen the first time, with figures.")
    at: datetime = Field(description="When the first was found, UTC.")
    last_at: datetime = Field(description="When the last was found, UTC.")
    elapsed_seconds: float = Field(description="Seconds of load before the first.")
    prompt_tokens: int = Field(description="Prompt length of the first one's request.")
    max_new_tokens: int = Field(description="New tokens that the first one's request asked for.")
    shortest_prompt_tokens: int = Field(description="Shortest prompt of all of them.")
    longest_prompt_tokens: int = Field(description="Longest prompt of all of them.")
    count: int = Field(default=1, description="How many there were.")
    waived: str | None = Field(default=None, description="Why it does not fail the run, by a waiver of the spec.")
    link: str | None = Field(default=None, description="Where the waiver says that it is known.")


class EngineRules(Value):
    """The rules of scheduling that the load and coverage expect."""

    release: str = Field(description="The release of SGLang whose rules they are.")
    assumed: bool = Field(description="Whether the engine's own version is not known, and may have others.")


class EngineInfo(Value):
    """The engine that ran."""

    name: str
    profile: Profile
    sglang_version: str
    rules: EngineRules | None = Field(
        default=None, description="Of its scheduling, as the load and coverage expect it."
    )
    allocator: Allocator
    arguments: tuple[str, ...] = Field(description="The full argument list, in order.")
    server: ServerInfo | None = Field(default=None, description="What those arguments make of the server.")
    environment: Mapping[str, str] = Field(
        default_factory=dict, description="Environment variables with which the scenario has SGLang launched."
    )
    clamp: bool | None = Field(
        default=None, description="Whether the installed allocator class has the clamp, before any variant."
    )
    device: str | None = Field(default=None, description="The NPU's name, where there is one.")
    address: str | None = Field(default=None, description="HOST:PORT of its HTTP server, while it runs.")
    simulation: Simulation | None = Field(
        default=None, description="How it was simulated; seconds of the run are those of its clock. Null: it was not."
    )

    @property
    def simulated(self) -> bool:
        """Whether no SGLang ran: nothing is shown of a release then."""
        return self.profile is Profile.SIMULATED

    @computed_field(description="Whether the allocator that runs has the clamp.")  # type: ignore[prop-decorator]
    @property
    def runs_with_clamp(self) -> bool | None:
        variants = {Allocator.PATCHED: True, Allocator.UNPATCHED: False}
        return variants.get(self.allocator, self.clamp)


class Progress(Value):
    """How a run stands while it runs."""

    status: RunStatus
    elapsed_seconds: float = Field(description="Seconds of load so far.")
    total_seconds: float = Field(description="Seconds of load that were asked for.")
    pool_pages: int
    free_pages: int | None = Field(default=None, description="Free pages before the last decode step's allocation.")
    measures: Measures = Field(default_factory=Measures)
    findings: tuple[Finding, ...] = Field(default=(), exclude=True, description="All so far; an event tells each.")
    histograms: Mapping[str, Counts] = Field(
        default_factory=dict,
        exclude=True,
        description="For the controller's own metrics; see service.execution.measuring.",
    )


class RunResult(Value):
    """What an executor gives back. The verdict is not its business."""

    status: RunStatus = Field(description="finished, failed_to_start, cancelled or interrupted.")
    detail: str | None = Field(default=None, description="Why it did not finish, the end of the log included.")
    engine: EngineInfo | None = None
    ready_at: datetime | None = Field(default=None, description="When the engine was ready, UTC.")
    measures: Measures = Field(default_factory=Measures)
    crashes: tuple[Crash, ...] = ()
    findings: tuple[Finding, ...] = ()


class Run(Value):
    """One engine under one scenario for a time."""

    id: str
    status: RunStatus = RunStatus.CREATED
    detail: str | None = Field(default=None, description="More about the status, where there is more to say.")
    verdict: Verdict | None = Field(default=None, description="Set when the run has ended.")
    reasons: tuple[str, ...] = Field(default=(), description="Why the verdict is what it is.")
    spec: RunSpec = Field(description="What was asked for; the seed that was drawn stands in it.")
    folder: Path = Field(description="Where its files are.")
    created_at: datetime
    started_at: datetime | None = None
    ready_at: datetime | None = None
    finished_at: datetime | None = None
    engine: EngineInfo | None = None
    measures: Measures = Field(default_factory=Measures)
    crashes: tuple[Crash, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def simulated(self) -> bool:
        """Whether its engine is known to be a simulated one."""
        return self.engine is not None and self.engine.simulated
