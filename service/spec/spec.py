"""The run spec: the same in YAML (`lastpage soak -f`) and in JSON (`POST /v1/runs`). `{}` is the default soak."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)

from loadgen.scenarios import SCENARIOS
from service.plugin.settings import Allocator
from service.spec.contents import check_json, check_size, check_text
from service.spec.duration import Duration
from service.spec.fraction import Fraction
from service.spec.thresholds import DEFAULT_THRESHOLDS, effective_thresholds
from service.spec.waivers import Waiver

MAX_SEED = 2**32 - 1
MIN_PAGE_SIZE, MAX_PAGE_SIZE = 2, 4096
MIN_POOL_PAGES, MAX_POOL_PAGES = 2, 1_000_000
_LONGEST = 30 * 86400

Word = Annotated[str, StringConstraints(min_length=1, pattern=r"^[^\x00]*$")]
"""Text that can stand in a command line or a path, where no NUL can."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class EngineSpec(_Section):
    """Which engine to launch, and with which pool."""

    name: Word | None = Field(
        default=None, description="A registered engine (`lastpage engine list`); absent: the default one."
    )
    allocator: Allocator = Field(
        default=Allocator.INSTALLED,
        description="`installed`: SGLang's own page allocator, untouched; `patched`: with the clamp guaranteed; "
        "`unpatched`: with the clamp removed, to show that its absence would have been caught.",
    )
    model: Word | None = Field(
        default=None,
        description="Folder of a model, with its config.json; absent: a tiny model that the project writes itself.",
    )
    page_size: int = Field(default=128, ge=MIN_PAGE_SIZE, le=MAX_PAGE_SIZE, description="Tokens a page.")
    pool_pages: int = Field(default=32, ge=MIN_POOL_PAGES, le=MAX_POOL_PAGES, description="Pages in the pool.")
    args: tuple[Word, ...] = Field(
        default=(), description="More SGLang arguments, as on its command line, except those the controller owns."
    )
    port: int | None = Field(
        default=None, ge=1, le=65535, description="Port of the engine on 127.0.0.1; absent: a free one."
    )

    @field_validator("args", mode="before")
    @classmethod
    def _numbers_are_words(cls, value: Any) -> Any:
        """YAML reads the 4 in `[--tp, 4]` as a number."""
        if not isinstance(value, (list, tuple)):
            return value
        return [str(word) if isinstance(word, (int, float)) and not isinstance(word, bool) else word for word in value]

    hang_seconds: float = Field(
        default=20.0,
        ge=1,
        le=3600,
        description="Seconds without a decode step while requests are open, or without an answer on its port, after "
        "which the engine counts as hanging.",
    )


class LoadSpec(_Section):
    """How load is made, and for how long."""

    scenario: str = Field(
        default=SCENARIOS.default.name, min_length=1, description="A scenario (`lastpage scenarios`)."
    )
    duration: Annotated[Duration, Field(gt=0, le=_LONGEST)] = Field(
        default=60.0, description="Time under load: seconds, or a text such as 90s, 5m, 1h30m."
    )
    until_coverage: Fraction | None = Field(
        default=None,
        description="Share of the reachable tight cells at which the load ends, if that comes before its time is over: "
        "0.9 or 90%. A run that does not get there is inconclusive.",
    )
    seed: int | None = Field(
        default=None, ge=0, le=MAX_SEED, description="Seed of the load; absent: drawn at random, and recorded."
    )
    options: dict[str, JsonValue] = Field(default_factory=dict, description="The scenario's own options.")

    @field_validator("options", mode="before")
    @classmethod
    def _can_be_options(cls, value: Any) -> Any:
        check_size(value)
        check_json(value)
        return value

    witness_share: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="Share of the requests whose answers are held against what they are without pressure; 0: none.",
    )
    starve_seconds: float | None = Field(
        default=None,
        ge=1,
        le=3600,
        description="Seconds without a token, while others are served or nobody is, after which a request counts as "
        "starved; less than engine.hang_seconds. Absent: half of that.",
    )


class RunSpec(_Section):
    """What to run. Every key has a default."""

    name: str | None = Field(default=None, min_length=1, max_length=120, description="A name for people.")
    labels: dict[str, str] = Field(default_factory=dict, max_length=32, description="Labels for people and tools.")
    engine: EngineSpec = Field(default_factory=EngineSpec)
    load: LoadSpec = Field(default_factory=LoadSpec)
    thresholds: tuple[str, ...] = Field(
        default=DEFAULT_THRESHOLDS,
        validate_default=True,
        description="Bounds on measures, as in `critical_steps >= 1000`. A default stays in force until a threshold "
        "on the same measure replaces it.",
    )

    waivers: tuple[Waiver, ...] = Field(
        default=(),
        max_length=100,
        description="Findings that are known faults of the release under test: counted and shown, and no failure.",
    )

    @model_validator(mode="before")
    @classmethod
    def _can_be_a_spec(cls, value: Any) -> Any:
        check_size(value)
        check_text(value)
        return value

    @field_validator("engine", "load", "labels", mode="before")
    @classmethod
    def _empty_section(cls, value: Any) -> Any:
        """In YAML a section with nothing under it is null."""
        return {} if value is None else value

    @field_validator("waivers", mode="before")
    @classmethod
    def _empty_waivers(cls, value: Any) -> Any:
        return () if value is None else value

    @field_validator("thresholds", mode="before")
    @classmethod
    def _empty_thresholds(cls, value: Any) -> Any:
        return DEFAULT_THRESHOLDS if value is None else value

    @field_validator("thresholds")
    @classmethod
    def _keep_defaults(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        load = info.data.get("load")
        fraction = load.until_coverage if isinstance(load, LoadSpec) else None
        return tuple(map(str, effective_thresholds(value, until_coverage=fraction)))
