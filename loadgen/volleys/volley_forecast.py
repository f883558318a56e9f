"""What follows from a volley, by the model of the scheduler (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..requests.planned_request import PlannedRequest
from ..sglang.pages import Pool
from ..sglang.releases import NEWEST
from ..sglang.rules import Rules
from ..sglang.scheduler import NotServable, Request, Scheduler
from ..sglang.shape import Shape
from ..sglang.steps import ModelStep

_LONGEST = 10_000


@dataclass(frozen=True)
class VolleyForecast:
    """An idle server, as the model of the scheduler knows it.

    Attributes:
        chunked_prefill_size: SGLang's argument of that name, tokens.
        rules: those that the model follows.
    """

    pool: Pool
    overlap: bool
    chunked_prefill_size: int
    rules: Rules = NEWEST

    def steps(self, shapes: Sequence[Shape]) -> Sequence[ModelStep]:
        """The decode steps when it gets these requests in one POST, until it is idle again.

        Returns:
            Nothing when SGLang would refuse one of them, or cut its answer, or when it takes too long.
        """
        scheduler = self._scheduler()
        if _submitted(scheduler, shapes) is None:
            return ()
        for _ in range(_LONGEST):
            if scheduler.idle:
                return scheduler.steps
            scheduler.iterate()
        return ()

    def cut(self, shapes: Sequence[Shape], steps: int) -> tuple[Shape, ...]:
        """The same requests with answers that end, as far as can be, with decode step number `steps`.

        Requests that would not have been admitted by then are left out. What was retracted by then keeps the tokens
        without which it would not have been there.
        """
        scheduler = self._scheduler()
        requests = _submitted(scheduler, shapes)
        if requests is None:
            return tuple(shapes)
        while len(scheduler.steps) < steps and not scheduler.idle:
            scheduler.iterate()
        return tuple(cut for request in requests if (cut := self._cut(request)) is not None)

    def _cut(self, request: Request) -> Shape | None:
        prompt, answer = request.shape.prompt_tokens, request.shape.max_new_tokens
        if request.finished:
            return request.shape
        if request.tokens:
            return Shape(prompt, min(answer, request.tokens - prompt + 1))
        if request.retracted:
            # With overlap scheduling it has a token under way whose result is not seen.
            return Shape(prompt, min(answer, request.output + (2 if self.overlap else 1)))
        return None

    def _scheduler(self) -> Scheduler:
        return Scheduler(
            self.pool,
            overlap=self.overlap,
            rules=self.rules,
            chunked_prefill_size=self.chunked_prefill_size,
        )


def _submitted(scheduler: Scheduler, shapes: Sequence[Shape]) -> list[Request] | None:
    try:
        return [scheduler.submit(shape) for shape in shapes]
    except NotServable:
        return None


def after_volley(server: Scheduler, requests: Iterable[PlannedRequest]) -> Scheduler | None:
    """An idle server that has had these requests in one POST, with the decode steps that it made of them.

    Args:
        server: as it was before; it is left alone.
        requests: each shares one segment at most.

    Returns:
        None when SGLang would refuse one of them, or cut its answer, or when it takes too long.
    """
    after = server.fork()
    try:
        for request in requests:
            after.submit(request.shape, *request.shared)
    except NotServable:
        return None
    for _ in range(_LONGEST):
        if after.idle:
            return after
        after.iterate()
    return None
