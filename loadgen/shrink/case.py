"""A load that is being shrunk, and what makes one shorter than another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..requests.notation import write_requests
from ..requests.planned_request import PlannedRequest
from ..scenarios.waves.scenario import WavesOptions, WaveSpec
from ..sglang.pages import Pool, pages_for


@dataclass(frozen=True)
class CaseWave:
    """A wave with its requests, numbered; see `WaveSpec` for when it is sent."""

    requests: tuple[PlannedRequest, ...]
    idle: bool = False
    after_steps: int = 0
    after_seconds: float = 0.0
    streamed: bool = False


class CaseSize(NamedTuple):
    """What is made small, the most important first: a case is shorter than another when its size is the lesser.

    Attributes:
        requests: how many.
        waves: how many.
        waiting: conditions on when waves are sent, and the decode steps that they wait for.
        extras: shared segments, clients that hang up, waves that are streamed.
        answer_tokens: of all requests, which is how long it takes.
        prompt_pages: that the prompts of all requests fill.
        ragged_prompts: prompts that are neither one token nor whole pages long. Within a page more is as good as less.
    """

    requests: int
    waves: int
    waiting: int
    extras: int
    answer_tokens: int
    prompt_pages: int
    ragged_prompts: int


@dataclass(frozen=True)
class Case:
    """Waves to be sent to a server with this pool."""

    pool: Pool
    waves: tuple[CaseWave, ...]

    @classmethod
    def of(cls, pool: Pool, options: WavesOptions) -> Case:
        """The case that stands in a spec."""
        waves = (
            CaseWave(requests, wave.idle, wave.after_steps, wave.after_seconds, wave.streamed)
            for wave, requests in zip(options.waves, options.requests(), strict=True)
        )
        return cls(pool, tuple(waves))

    def written(self) -> tuple[WaveSpec, ...]:
        """The waves as they stand in a spec."""
        waves, number = [], 1
        for wave in self.waves:
            numbered = [(request.number or 0, request) for request in wave.requests]
            waves.append(
                WaveSpec(
                    idle=wave.idle,
                    after_steps=wave.after_steps,
                    after_seconds=wave.after_seconds,
                    streamed=wave.streamed,
                    requests=write_requests(numbered, number),
                )
            )
            number = numbered[-1][0] + 1
        return tuple(waves)

    @property
    def requests(self) -> tuple[PlannedRequest, ...]:
        """All requests, in the order in which they are sent."""
        return tuple(request for wave in self.waves for request in wave.requests)

    @property
    def size(self) -> CaseSize:
        requests, page_size = self.requests, self.pool.page_size
        prompts = [request.shape.prompt_tokens for request in requests]
        return CaseSize(
            requests=len(requests),
            waves=len(self.waves),
            waiting=sum(wave.idle + bool(wave.after_seconds) + wave.after_steps for wave in self.waves),
            extras=sum(len(r.shared) + r.hangs_up for r in requests) + sum(wave.streamed for wave in self.waves),
            answer_tokens=sum(request.shape.max_new_tokens for request in requests),
            prompt_pages=sum(pages_for(tokens, page_size) for tokens in prompts),
            ragged_prompts=sum(tokens > 1 and tokens % page_size > 0 for tokens in prompts),
        )

    def __str__(self) -> str:
        size = self.size
        requests = f"{size.requests:,} request{'s' * (size.requests != 1)}"
        waves = f"{size.waves:,} wave{'s' * (size.waves != 1)}"
        return f"{requests} in {waves}, {size.prompt_pages:,} pages of prompt, {size.answer_tokens:,} tokens of answer"

    def only_waves(self, places: Iterable[int]) -> Case:
        """The case with these waves alone."""
        return replace(self, waves=tuple(self.waves[place] for place in places))

    def only(self, places: Iterable[int]) -> Case:
        """The case with these of its requests alone, by their place among all; a wave without any is gone."""
        kept = set(places)
        return self.each(lambda place, request: request if place in kept else None)

    def each(self, change: Callable[[int, PlannedRequest], PlannedRequest | None]) -> Case:
        """The case with each request changed; None takes it out."""
        waves, place = [], 0
        for wave in self.waves:
            changed = [change(place + offset, request) for offset, request in enumerate(wave.requests)]
            place += len(wave.requests)
            if requests := tuple(request for request in changed if request is not None):
                waves.append(replace(wave, requests=requests))
        return replace(self, waves=tuple(waves))

    def with_requests(self, changed: dict[int, PlannedRequest]) -> Case:
        """The case with some requests replaced, by their place among all."""
        return self.each(lambda place, request: changed.get(place, request))

    def with_wave(self, place: int, wave: CaseWave) -> Case:
        return replace(self, waves=(*self.waves[:place], wave, *self.waves[place + 1 :]))

    def together(self, requests: Sequence[PlannedRequest]) -> Case:
        """These requests in one wave, in one call where nobody hangs up."""
        return replace(self, waves=(CaseWave(tuple(requests)),))
