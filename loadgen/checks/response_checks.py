"""What is watched for while load is made: wrong answers, and requests that are not served."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..http.client import GenerateClient, GenerateRequest
from ..http.connection import HttpError
from ..http.stream import TokenTimes
from ..requests.outcome import Completion
from ..requests.planned_request import PlannedRequest
from ..requests.prompts import PromptMaker
from ..sglang.steps import ObservedStep
from .fairness import Call, Fairness, Work
from .findings import Occurrence
from .witness import Dispute, Sighting, Witnesses, contradicting

_MOST_SETTLED = 8


@dataclass(frozen=True, slots=True)
class Sending:
    """A request on its way.

    Attributes:
        number: from which its own tokens come.
        step: the last decode step before it was sent, as recorded.
        witness: whether its answer is held against others.
    """

    number: int
    planned_request: PlannedRequest
    request: GenerateRequest
    step: int | None
    witness: bool


class ResponseChecks:
    """Looks at every request of a load.

    Args:
        work: what the server has done so far; None when nobody can tell, and nothing is said about fairness then.
        witnesses: None: there are none.

    Attributes:
        disputes: answers that differ, to be settled by asking the server.
    """

    def __init__(
        self,
        prompts: PromptMaker,
        witnesses: Witnesses | None = None,
        fairness: Fairness | None = None,
        work: Callable[[], Work] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.witnesses = witnesses
        self._prompts = prompts
        self._fairness = fairness or Fairness(math.inf)
        self._work = work
        self._clock = clock
        self._began: float | None = None
        self._step: int | None = None
        self._occurrences: list[Occurrence] = []
        self._settled = 0
        self.disputes: list[Dispute] = []

    @property
    def given_up(self) -> int:
        """Requests that were taken back because the server stood idle, and has stood idle since."""
        return self._fairness.suspects

    def sending(self, number: int, planned_request: PlannedRequest) -> Sending:
        """The request to send for a planned one."""
        witness = self.witnesses is not None and self.witnesses.chooses(number, planned_request)
        maker = self.witnesses if witness and self.witnesses else self._prompts
        prompt = maker.prompt(number, planned_request)
        request = GenerateRequest(prompt, planned_request.shape.max_new_tokens)
        return Sending(number, planned_request, request, self._step, witness)

    def call_started(self, sendings: Sequence[Sending], tokens: TokenTimes | None) -> Call:
        """A call with these requests is being sent."""
        return self._fairness.call_started([sending.planned_request for sending in sendings], self._clock(), tokens)

    def call_ended(self, call: Call, sendings: Sequence[Sending], completions: Sequence[Completion]) -> None:
        """A call is over.

        Args:
            completions: one for each of its requests.
        """
        self._fairness.call_ended(call, completions, self._clock())
        for sending, completion in zip(sendings, completions, strict=True):
            seen = Sighting(self._clock() - (self._began or self._clock()), sending.step, self._step)
            occurrence = contradicting(completion, sending.planned_request.shape, seen)
            if occurrence is not None:
                self._occurrences.append(occurrence)
            elif sending.witness and self.witnesses is not None:
                dispute = self.witnesses.add_answer(sending.number, sending.planned_request, completion, seen)
                if dispute is not None and self._settled < _MOST_SETTLED:
                    self._settled += 1
                    self.disputes.append(dispute)

    def look(self, steps: Sequence[ObservedStep]) -> Sequence[Call]:
        """Called often, with the decode steps since the last time. Returns calls that the load should take back."""
        self._began = self._began or self._clock()
        if steps:
            self._step = steps[-1].step
        if self._work is None:
            return ()
        return self._fairness.look(self._clock(), self._work())

    async def settle(self, dispute: Dispute, client: GenerateClient) -> None:
        """Ask for the token in which two answers differ. What cannot be settled is left for after the load."""
        assert self.witnesses is not None
        try:
            (verdict,) = await client.score([GenerateRequest(dispute.prompt, 1)])
        except (HttpError, ValueError):
            return
        occurrence = self.witnesses.settle(dispute, verdict)
        if occurrence is not None:
            self._occurrences.append(occurrence)

    def served(self) -> None:
        """After the load the server has served a request."""
        self._fairness.served(self._clock())

    def take(self) -> list[Occurrence]:
        """What was found since the last time."""
        occurrences, self._occurrences = self._occurrences, []
        return occurrences + self._fairness.take()
