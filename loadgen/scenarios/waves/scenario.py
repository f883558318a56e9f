"""`waves`: waves that were written down, such as those that a run had sent when the engine crashed.

A scenario that follows the server decides by the decode steps that it has seen. So a wave here waits until as many
decode steps have been seen as when it was first sent, counted from when the server was last idle, and meets the server
in the state in which it met it then. It does not wait for steps that cannot come: when nothing is open the server makes
none.
Where no step tells one wave from the one before it, as between prompts that are answered with one token, the time
between the two decides.

The server is launched as the scenario that made the waves needs it (`made_by`, `made_with`), and prompts come from the
seed and the number of each request (`loadgen.requests.notation`), so they are those of the run in which the waves were
made.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import Field, ValidationInfo, field_validator, model_validator

from ...requests.notation import read_requests
from ...requests.planned_request import PlannedRequest
from ...requests.wave import Wave
from ...sglang.launch_arguments import usual_launch
from ...sglang.pages import Pool
from ...sglang.server import EngineNeeds, ServerConfiguration
from ..base import Misfit, NoOptions, Observation, Scenario, Streamed
from ..registry import SCENARIOS

MOST_REQUESTS = 200_000
"""Of all waves together: more would take long to read."""

_MOST_STEPS = 10**12


class WaveSpec(NoOptions):
    """A wave, and when it is sent. The first one is sent when the load begins."""

    idle: bool = Field(
        default=False,
        description="Sent when nothing is open any more; steps and time of the waves behind it count anew.",
    )
    after_steps: int = Field(
        default=0, ge=0, le=_MOST_STEPS, description="Decode steps to have been seen since the server was last idle."
    )
    after_seconds: float = Field(
        default=0.0, ge=0, le=30 * 86400, description="Seconds since the wave before it was sent."
    )
    streamed: bool = Field(default=False, description="Each answer comes as a stream, instead of all in one.")
    requests: str = Field(description="In the order in which they are sent, as in `101+30 102+31`: PROMPT+ANSWER.")

    @field_validator("requests")
    @classmethod
    def _readable(cls, value: str) -> str:
        read_requests(value)
        return value

    @model_validator(mode="after")
    def _one_condition(self) -> WaveSpec:
        if self.idle and self.after_steps:
            raise ValueError("both idle and after_steps, which counts from then; allowed: either")
        return self


class WavesOptions(NoOptions):
    """Options of `waves`."""

    waves: tuple[WaveSpec, ...] = Field(
        description="In order; each with `requests`, and with `idle`, `after_steps` or `after_seconds`."
    )
    made_by: str | None = Field(
        default=None, description="The scenario that made them: the server is launched as that one needs it."
    )
    made_with: dict[str, Any] = Field(default_factory=dict, description="The options of that scenario.")

    @field_validator("waves", mode="before")
    @classmethod
    def _not_too_many(cls, value: Any) -> Any:
        # Each request has one +; they are counted before they are read.
        waves = value if isinstance(value, (list, tuple)) else ()
        texts = (wave.get("requests") if isinstance(wave, dict) else None for wave in waves)
        if (requests := sum(text.count("+") for text in texts if isinstance(text, str))) > MOST_REQUESTS:
            raise ValueError(f"{requests:,} requests; allowed: up to {MOST_REQUESTS:,}, of all waves together")
        return value

    @field_validator("waves")
    @classmethod
    def _some(cls, value: tuple[WaveSpec, ...]) -> tuple[WaveSpec, ...]:
        # With `min_length` a fault in the only wave would be told as too few waves as well.
        if not value:
            raise ValueError("there is no wave; allowed: at least one")
        return value

    @field_validator("made_by")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        allowed = [name for name in SCENARIOS if name != Waves.name]
        if value is not None and value not in allowed:
            raise ValueError(f"no such scenario; allowed: {', '.join(allowed)}")
        return value

    @field_validator("made_with")
    @classmethod
    def _options_of_the_maker(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        maker = SCENARIOS.get(info.data.get("made_by") or "")
        if maker is None:
            if value and "made_by" in info.data:
                raise ValueError("options of no scenario; allowed: none without made_by")
            return value
        # Whatever is wrong is told as of the field within `made_with` that it is in.
        maker.Options.model_validate(value)
        return value

    def maker(self) -> tuple[type[Scenario[Any]], NoOptions] | None:
        """The scenario that made the waves, and its options."""
        if self.made_by is None:
            return None
        scenario = SCENARIOS[self.made_by]
        return scenario, scenario.Options.model_validate(self.made_with)

    def requests(self) -> list[tuple[PlannedRequest, ...]]:
        """The requests of each wave, with their numbers."""
        waves, number = [], 1
        for wave in self.waves:
            waves.append(read_requests(wave.requests, number))
            number = (waves[-1][-1].number or 0) + 1
        return waves


class Waves(Scenario[WavesOptions]):
    name = "waves"
    summary = "Waves that were written down, sent when the server is where it was: what a crash's repro.yaml replays"
    follows = True
    streamed = Streamed.SOME
    Options = WavesOptions

    def __init__(self, server: ServerConfiguration, options: WavesOptions, seed: int) -> None:
        super().__init__(server, options, seed)
        self._requests = options.requests()
        self._sent = 0
        self._steps = 0
        self._idle_steps = 0
        self._sent_at = 0.0

    @classmethod
    def faults(cls, pool: Pool, options: WavesOptions) -> list[Misfit]:
        maker = options.maker()
        faults = [] if maker is None else list(map(_of_the_maker, maker[0].launch_faults(pool, maker[1])))
        longest = max(request.shape.prompt_tokens for wave in options.requests() for request in wave)
        if longest >= pool.tokens:
            message = f"a prompt of {longest} tokens does not fit into {pool.pages} pages of {pool.page_size}"
            faults.append(Misfit("engine.pool_pages", pool.pages, f"{message}; use a larger pool, or shorter prompts"))
        return faults

    @classmethod
    def engine_needs(cls, pool: Pool, options: WavesOptions) -> EngineNeeds:
        maker = options.maker()
        return maker[0].engine_needs(pool, maker[1]) if maker is not None else usual_launch(pool)

    @classmethod
    def streams(cls, options: WavesOptions) -> bool:
        return any(wave.streamed for wave in options.waves)

    @classmethod
    def longest_request(cls, pool: Pool, options: WavesOptions) -> int:
        shapes = [request.shape for wave in options.requests() for request in wave]
        return max(shape.prompt_tokens + shape.max_new_tokens for shape in shapes)

    @property
    def finished(self) -> bool:
        return self._sent == len(self._requests)

    def next_wave(self, seen: Observation) -> Wave:
        self._steps += len(seen.steps)
        if self.finished:
            return Wave()
        wave = self.options.waves[self._sent]
        if not self._due(wave, seen):
            return Wave()
        if wave.idle:
            self._idle_steps = self._steps
        self._sent += 1
        self._sent_at = seen.elapsed
        return Wave(self._requests[self._sent - 1], wave.streamed)

    def _due(self, wave: WaveSpec, seen: Observation) -> bool:
        if seen.elapsed - self._sent_at < wave.after_seconds:
            return False
        stepped = not wave.idle and self._steps - self._idle_steps >= wave.after_steps
        return stepped or not seen.open_requests


def _of_the_maker(fault: Misfit) -> Misfit:
    """Its options stand in `made_with`."""
    return replace(fault, field=fault.field.replace("load.options.", "load.options.made_with.", 1))
