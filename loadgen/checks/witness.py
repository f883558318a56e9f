"""Witnesses: requests under load whose answers are held against what they are without pressure (pure).

Which requests are witnesses follows from the seed and their numbers. Without a prefix cache all witnesses of one prompt
length have the same prompt, so that each answer tells about all others: greedy answers of one prompt are prefixes of
each other. With a prefix cache the second of them would be served from the pages of the first, and the scenario would
not get the admissions that it plans; there each witness has the prompt that it would have had anyway, and is held
against an answer that is asked for after the load alone.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..http.logprobs import Scored, first_difference
from ..requests.outcome import Completion, RequestOutcome
from ..requests.planned_request import PlannedRequest
from ..requests.prompts import PromptMaker
from ..sglang.admission import charge
from ..sglang.shape import Shape
from .findings import FindingKind, Occurrence

PROMPTS_KEPT = 256
_VARIANTS_KEPT = 8
_TOKENS_KEPT = 2048
_DIGEST_BYTES = 4

DIFFERS = "a witness's tokens differ from those without pressure"
DISAGREE = "two witnesses of one prompt disagree"
CONTRADICTS = "stream, token count and final answer contradict each other"


@dataclass(frozen=True)
class Sighting:
    """When an answer was seen.

    Attributes:
        elapsed: seconds since the load began.
        first_step, last_step: the last decode steps before it was sent and before its answer came, as recorded.
    """

    elapsed: float
    first_step: int | None = None
    last_step: int | None = None

    def __str__(self) -> str:
        steps = "" if self.first_step is None else f", between decode steps {self.first_step} and {self.last_step}"
        return f"{self.elapsed:.1f} s into the load{steps}"


@dataclass
class Variant:
    """One answer to a prompt, and all that are prefixes of it.

    Attributes:
        ids: the longest of them.
        count: how many there were.
        reported: whether it has been found wrong already.
        seen, shape: of the first.
    """

    ids: tuple[int, ...]
    seen: Sighting
    shape: Shape
    count: int = 1
    reported: bool = False


@dataclass
class Testimony:
    """All answers of witnesses with one prompt."""

    prompt: list[int]
    variants: list[Variant] = field(default_factory=list)
    beyond: int = 0

    @property
    def answers(self) -> int:
        return sum(variant.count for variant in self.variants) + self.beyond

    @property
    def longest(self) -> int:
        """New tokens of its longest answer."""
        return max((len(variant.ids) for variant in self.variants), default=0)


@dataclass(frozen=True)
class Dispute:
    """Two answers to one prompt that differ.

    Attributes:
        prompt: the prompt, and the answer as far as they agree.
        place: the token, from 0, in which they differ.
    """

    prompt: list[int]
    place: int
    earlier: Variant
    later: Variant


class Witnesses:
    """Chooses witnesses, and keeps what they said.

    Args:
        share: of all requests, from 0 to 1.
        shared_prompts: whether witnesses of one prompt length have the same prompt.
        margin: how close two tokens' probabilities may be, in nats, for either to be right.

    Attributes:
        answered: answers of witnesses that came.
        compared: of these, those that were held against the answer without pressure.
        near_ties: of these, those that differ in a token that was as good as the other.
    """

    def __init__(
        self, prompts: PromptMaker, seed: int, share: float, shared_prompts: bool = True, margin: float = 0.0
    ) -> None:
        self._prompts = prompts
        self._seed = seed
        self._below = int(share * 2 ** (8 * _DIGEST_BYTES))
        self._shared_prompts = shared_prompts
        self._margin = margin
        self._testimonies: dict[int, Testimony] = {}
        # Which are kept has no part in what is sent.
        self._random = random.Random(0)
        self.answered = 0
        self.compared = 0
        self.near_ties = 0

    def chooses(self, number: int, planned_request: PlannedRequest) -> bool:
        """Whether a request is a witness."""
        if planned_request.hangs_up or not planned_request.shape.max_new_tokens:
            return False
        digest = hashlib.blake2b(f"{self._seed} witness {number}".encode(), digest_size=_DIGEST_BYTES).digest()
        if int.from_bytes(digest, "big") >= self._below:
            return False
        if not self._shared_prompts or planned_request.shape.prompt_tokens in self._testimonies:
            return True
        if len(self._testimonies) >= PROMPTS_KEPT:
            return False
        self._testimonies[planned_request.shape.prompt_tokens] = Testimony(self.prompt(number, planned_request))
        return True

    def prompt(self, number: int, planned_request: PlannedRequest) -> list[int]:
        """The prompt of a witness."""
        if self._shared_prompts:
            return self._prompts.witness(planned_request.shape.prompt_tokens)
        return self._prompts.prompt(number, planned_request)

    def add_answer(
        self, number: int, planned_request: PlannedRequest, completion: Completion, seen: Sighting
    ) -> Dispute | None:
        """Take in a witness's answer; a dispute when it differs from what another one said."""
        if completion.outcome is not RequestOutcome.DONE or not completion.output_ids:
            return None
        self.answered += 1
        testimony = self._testimony(number, planned_request)
        if testimony is None:
            return None
        answer = Variant(completion.output_ids[:_TOKENS_KEPT], seen, planned_request.shape)
        for variant in testimony.variants:
            if first_difference(variant.ids, answer.ids) is None:
                variant.count += 1
                variant.ids = max(variant.ids, answer.ids, key=len)
                return None
        if len(testimony.variants) >= _VARIANTS_KEPT:
            testimony.beyond += 1
            return None
        testimony.variants.append(answer)
        if len(testimony.variants) == 1:
            return None
        earlier = testimony.variants[0]
        place = first_difference(earlier.ids, answer.ids) or 0
        return Dispute([*testimony.prompt, *answer.ids[:place]], place, earlier, answer)

    def settle(self, dispute: Dispute, verdict: Scored) -> Occurrence | None:
        """What a dispute comes to, once the token in which they differ has been asked for alone."""
        tokens = {variant.ids[dispute.place] for variant in (dispute.earlier, dispute.later)}
        if verdict.ids and verdict.ids[0] in tokens:
            (other,) = tokens - {verdict.ids[0]}
            if self._near(verdict, 0, other):
                return None
        dispute.later.reported = True
        return _wrong_output(
            DISAGREE,
            f"two witnesses of one prompt differ at token {dispute.place + 1}: "
            f"one had {dispute.earlier.ids[dispute.place]} ({dispute.earlier.seen}), "
            f"the other {dispute.later.ids[dispute.place]} ({dispute.later.seen})",
            dispute.later,
            1,
        )

    def questions(self) -> Iterator[Testimony]:
        """What is to be asked without pressure: first where answers differ, then by how many answers there are."""
        with_answers = (testimony for testimony in self._testimonies.values() if testimony.variants)
        return iter(sorted(with_answers, key=lambda one: (len(one.variants) < 2, -one.answers)))

    def compare(self, testimony: Testimony, known: Scored) -> list[Occurrence]:
        """Hold all answers to a prompt against the one without pressure."""
        occurrences = []
        self.compared += testimony.answers - testimony.beyond
        for variant in testimony.variants:
            place = first_difference(known.ids, variant.ids)
            if place is None:
                continue
            if self._near(known, place, variant.ids[place]):
                self.near_ties += variant.count
                continue
            count = variant.count - variant.reported
            if not count:
                continue
            detail = (
                f"token {place + 1} of {len(variant.ids)} is {variant.ids[place]}, "
                f"without pressure it is {known.ids[place]}; answered {variant.seen}"
            )
            occurrences.append(_wrong_output(DIFFERS, detail, variant, count))
        return occurrences

    @property
    def not_compared(self) -> int:
        """Answers that were not held against anything."""
        return self.answered - self.compared

    @property
    def disagreeing(self) -> int:
        """Prompts to which there were different answers."""
        return sum(len(testimony.variants) > 1 for testimony in self._testimonies.values())

    def _near(self, known: Scored, place: int, other: int) -> bool:
        lead = known.lead(place, other)
        return lead is not None and lead <= self._margin

    def _testimony(self, number: int, planned_request: PlannedRequest) -> Testimony | None:
        if self._shared_prompts:
            return self._testimonies[planned_request.shape.prompt_tokens]
        if len(self._testimonies) >= PROMPTS_KEPT:
            # Each of all witnesses is kept with the same chance (algorithm R).
            if (place := self._random.randrange(self.answered)) >= PROMPTS_KEPT:
                return None
            del self._testimonies[list(self._testimonies)[place]]
        self._testimonies[number] = testimony = Testimony(self.prompt(number, planned_request))
        return testimony


def contradicting(completion: Completion, shape: Shape, seen: Sighting) -> Occurrence | None:
    """What is wrong with an answer whose parts do not agree with each other."""
    if not completion.contradiction:
        return None
    detail = f"{completion.contradiction}; answered {seen}"
    return Occurrence(
        FindingKind.WRONG_OUTPUT, CONTRADICTS, detail, seen.elapsed, shape.prompt_tokens, shape.max_new_tokens
    )


def _wrong_output(cause: str, detail: str, variant: Variant, count: int) -> Occurrence:
    shape = variant.shape
    return Occurrence(
        FindingKind.WRONG_OUTPUT,
        cause,
        detail,
        variant.seen.elapsed,
        shape.prompt_tokens,
        shape.max_new_tokens,
        count,
    )


def batches(questions: Sequence[Testimony], pages: int, page_size: int, most: int) -> Iterator[list[Testimony]]:
    """Questions that together leave most of a pool free.

    Args:
        pages: pages that a batch may take.
        most: questions in a batch.
    """
    batch: list[Testimony] = []
    left = pages
    for question in questions:
        needed = charge(len(question.prompt) + question.longest, page_size) // page_size
        if batch and (needed > left or len(batch) == most):
            yield batch
            batch, left = [], pages
        batch.append(question)
        left -= needed
    if batch:
        yield batch
