"""What follows from a volley, by the model of the scheduler (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..pages import Pool, Shape
from ..scheduler_model import ModelStep, NotServable, Release, Scheduler

_LONGEST = 10_000


def forecast(
    pool: Pool,
    shapes: Iterable[Shape],
    *,
    overlap: bool,
    chunked_prefill_size: int,
    release: Release = Release.V0_5_23,
) -> Sequence[ModelStep] | None:
    """The decode steps of an idle server that gets these requests in one POST, until it is idle again.

    Returns:
        None when SGLang would refuse one of them, or cut its answer, or when it takes too long.
    """
    scheduler = Scheduler(pool, overlap=overlap, release=release, chunked_prefill_size=chunked_prefill_size)
    try:
        for shape in shapes:
            scheduler.submit(shape)
    except NotServable:
        return None
    for _ in range(_LONGEST):
        if scheduler.idle:
            return scheduler.steps
        scheduler.iterate()
    return None
