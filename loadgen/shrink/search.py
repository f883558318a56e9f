"""The search for a shorter case: proposes one after another, and is told of each whether it crashes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from ..sglang.limits import is_servable
from ..sglang.releases import NEWEST
from ..sglang.rules import Rules
from .case import Case
from .moves import MOVES, Move

AS_IT_IS = "as it is"
FOUND_ON_THE_MODEL = "found on the model"
_MOST_FORESEEN = 2000


@dataclass(frozen=True)
class Proposal:
    """A case to try.

    Attributes:
        move: how it was come by, for people.
    """

    case: Case
    move: str


def search(
    original: Case,
    *,
    likely: Sequence[Case] = (),
    known: bool = False,
    foresee: Callable[[Case], bool] | None = None,
    patience: int | None = None,
    rules: Rules = NEWEST,
) -> Generator[Proposal, bool, Case | None]:
    """Propose cases, each of which is answered by whether it crashes, until none that is shorter is left to try.

    What is proposed is shorter than what has crashed so far, and no case is proposed twice; nor one with a request that
    SGLang would refuse, unless the original has one.

    Args:
        likely: shorter cases to try before the original, such as one found on a model. When one crashes, the original
            need not.
        known: the original has crashed already.
        foresee: whether a case is likely to crash. Within a move those come first.
        patience: how many proposals of a move may fail before the next move has its turn; None tries all.
        rules: those of the server's release.

    Returns:
        the shortest case that has crashed; None when nothing has.
    """
    allowed = partial(_servable, rules=rules) if _servable(original, rules) else _anything
    tried = set()
    best: Case | None = None
    for case in likely:
        tried.add(case)
        if (yield Proposal(case, FOUND_ON_THE_MODEL)):
            best = case
            break
    if best is None:
        tried.add(original)
        if not known and not (yield Proposal(original, AS_IT_IS)):
            return None
        best = original
    improved = True
    while improved:
        improved = False
        for name, move_of in MOVES.items():
            failed = 0
            candidates = _candidates(best, move_of, allowed, foresee)
            while (candidate := next(candidates, None)) is not None and (patience is None or failed < patience):
                if candidate in tried:
                    continue
                tried.add(candidate)
                if (yield Proposal(candidate, name)):
                    best, improved, failed = candidate, True, 0
                    candidates = _candidates(best, move_of, allowed, foresee)
                else:
                    failed += 1
    return best


def _candidates(
    case: Case, move: Move, allowed: Callable[[Case], bool], foresee: Callable[[Case], bool] | None
) -> Iterator[Case]:
    """The shorter ones of a move's cases, the likely ones first."""
    size = case.size
    shorter = (
        candidate for candidate in move(case) if candidate.waves and candidate.size < size and allowed(candidate)
    )
    if foresee is None:
        yield from shorter
        return
    others = []
    for candidate in itertools.islice(shorter, _MOST_FORESEEN):
        if foresee(candidate):
            yield candidate
        else:
            others.append(candidate)
    yield from others
    yield from shorter


def _servable(case: Case, rules: Rules) -> bool:
    """Whether SGLang takes every request: one that it never admits is a hang, and costs an engine to find out."""
    return all(is_servable(request.shape, case.pool, rules) for request in case.requests)


def _anything(_case: Case) -> bool:
    return True
