"""Notices requests that the server takes in and does not serve (pure: time is given, nothing is waited for).

What is seen of SGLang here was read in `managers/scheduler.py` and `managers/schedule_policy.py`: requests are admitted
in the order in which they came, and one for which there is no room keeps all behind it waiting. So one that can never
be admitted ends with a server that stands idle while requests are open, and does so until its client gives up.

A request is *starved* in one of three ways:

- *never admitted*: it was the oldest of those open, no token of it had come, and for `starve_seconds` (`_STALL_SECONDS`
  when its client had planned to hang up) the server began no prefill and made no decode step. Then it was given up,
  by its client or by the load, and the server worked again;
- *overtaken*, of a streamed request: no token has come `starve_seconds` after one that was sent later was served;
- *overtaken*, of several in one call, which are answered together: a call that was sent later is complete, and
  `starve_seconds` later and after more decode steps than the longest of them takes, this one is not. A retraction sends
  a request back to the end of the queue, so only calls that were sent after the last retraction can overtake.

What is not held against the server: a long queue, as long as it is fair; a pause in which a prefill may be running; a
pause of the machine, in which this is not called either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..http.stream import TokenTimes
from ..requests.outcome import Completion, RequestOutcome
from ..requests.planned_request import PlannedRequest
from .findings import FindingKind, Occurrence

_STALL_SECONDS = 1.0
# Between a client's hanging up and SGLang's noticing it (SGLANG_REQUEST_STATE_WAIT_TIMEOUT, 4 s by default).
_NOTICED_SECONDS = 8.0
# A call of ours that comes so late tells that the machine stood still, not that the server did.
_PAUSE_SECONDS = 0.5
# There may be very many open calls.
_CHECK_SECONDS = 0.25

NEVER_ADMITTED = "never admitted: the server stood idle until it was given up"
OVERTAKEN = "overtaken: requests that were sent later were served"


@dataclass(frozen=True)
class Work:
    """What a server has done so far, counted by the probe in it."""

    decode_steps: int = 0
    prefill_batches: int = 0
    retractions: int = 0


class Call:
    """One HTTP call with the requests in it, as long as it is open.

    Attributes:
        requests: what was sent.
        tokens: the tokens that have come of it; None when it is not streamed.
        given_up: whether the load has asked for it to be taken back.
    """

    def __init__(
        self, requests: Sequence[PlannedRequest], order: int, at: float, work: Work, tokens: TokenTimes | None
    ) -> None:
        self.requests = requests
        self.tokens = tokens
        self.given_up = False
        self.order = order
        self.at = at
        self.work = work
        self.overtaken: tuple[float, int] | None = None
        self.reported = False

    @property
    def silent(self) -> bool:
        """Whether no token of it is known to have come."""
        return self.tokens is None or not self.tokens.count

    @property
    def longest(self) -> PlannedRequest:
        """The request that is the hardest to admit."""
        return max(self.requests, key=lambda request: request.shape.prompt_tokens)


@dataclass
class _Suspect:
    """A call that was given up while the server stood idle; it is told of when the server works again."""

    call: Call
    idle_seconds: float
    believed_until: float


class Fairness:
    """Follows the calls of one load. Times are seconds of one clock that only goes forward.

    Args:
        starve_seconds: how long a request may go without a token while others are served.
    """

    def __init__(self, starve_seconds: float) -> None:
        self._starve_seconds = starve_seconds
        self._open: dict[int, Call] = {}
        self._orders = 0
        self._head: Call | None = None
        self._head_since = 0.0
        self._work = Work()
        self._moved_at = 0.0
        self._prefilling = False
        self._looked_at: float | None = None
        self._checked_at = 0.0
        self._suspects: list[_Suspect] = []
        self._first_of_late = 0
        self._occurrences: list[Occurrence] = []
        self._began = 0.0

    @property
    def suspects(self) -> int:
        """Requests that were given up since the server last worked."""
        return sum(len(suspect.call.requests) for suspect in self._suspects if suspect.call.given_up)

    def call_started(self, requests: Sequence[PlannedRequest], at: float, tokens: TokenTimes | None = None) -> Call:
        """A call is sent."""
        call = Call(requests, self._orders, at, self._work, tokens)
        self._orders += 1
        self._open[call.order] = call
        self._choose_head(at)
        return call

    def call_ended(self, call: Call, completions: Sequence[Completion], at: float) -> None:
        """A call is answered, or over for another reason."""
        self._open.pop(call.order, None)
        outcomes = {completion.outcome for completion in completions}
        if (
            RequestOutcome.HUNG_UP in outcomes
            and not call.given_up
            and call.silent
            and self._idle(call, at) >= _STALL_SECONDS
        ):
            self._suspects.append(_Suspect(call, self._idle(call, at), float("inf")))
        if RequestOutcome.DONE in outcomes:
            self._overtake(call, at)
        self._choose_head(at)

    def look(self, at: float, work: Work) -> Sequence[Call]:
        """What has become of the open calls. Called often.

        Returns:
            calls that the load should take back: if the server works then, it was they that it stood idle for.
        """
        if self._looked_at is None:
            self._began = self._moved_at = at
        elif (pause := at - self._looked_at) > _PAUSE_SECONDS:
            self._sit_out(pause, at)
        self._looked_at = at
        self._follow(at, work)
        if at - self._checked_at >= _CHECK_SECONDS:
            self._checked_at = at
            self._find_overtaken(at)
        head = self._head
        if head is None or head.given_up or not head.silent:
            return ()
        longest_idle = _STALL_SECONDS if self.suspects else self._starve_seconds
        idle = self._idle(head, at)
        if idle < longest_idle:
            return ()
        head.given_up = True
        self._suspects.append(_Suspect(head, idle, at + _NOTICED_SECONDS))
        return (head,)

    def served(self, at: float) -> None:
        """After the load the server has served a request."""
        self._report_suspects(at)

    def take(self) -> list[Occurrence]:
        """What was found since the last time."""
        occurrences, self._occurrences = self._occurrences, []
        return occurrences

    def _sit_out(self, pause: float, at: float) -> None:
        """The machine stood still for so long: what the server has sent meanwhile may not have been read yet."""
        self._moved_at = self._checked_at = at
        for call in self._open.values():
            if call.overtaken is not None:
                since, steps = call.overtaken
                call.overtaken = (since + pause, steps)

    def _follow(self, at: float, work: Work) -> None:
        if work == self._work:
            return
        if work.retractions != self._work.retractions:
            self._first_of_late = self._orders
            for call in self._open.values():
                if call.tokens is None:
                    call.overtaken = None
        # Prefill takes its pages before it computes: as long as no decode step has followed it may still run.
        self._prefilling = (
            work.decode_steps == self._work.decode_steps and work.prefill_batches != self._work.prefill_batches
        )
        self._work = work
        self._moved_at = at
        self._report_suspects(at)

    def _report_suspects(self, at: float) -> None:
        for suspect in self._suspects:
            if at <= suspect.believed_until:
                self._report(
                    suspect.call, NEVER_ADMITTED, f"the server stood idle for {suspect.idle_seconds:.1f} s", at
                )
        self._suspects = []

    def _overtake(self, served: Call, at: float) -> None:
        """A call is complete: those that were sent before it and are still without a token were overtaken."""
        for call in self._open.values():
            if call.order >= served.order or call.overtaken is not None or not call.silent:
                continue
            if call.tokens is not None or served.order >= self._first_of_late:
                call.overtaken = (at, self._work.decode_steps)

    def _find_overtaken(self, at: float) -> None:
        served_later = False
        for call in reversed(self._open.values()):
            if call.tokens is None:
                self._find_overtaken_call(call, at)
                continue
            if call.tokens.count:
                served_later = True
            elif served_later and call.overtaken is None:
                call.overtaken = (at, self._work.decode_steps)
            elif call.overtaken is not None and at - call.overtaken[0] > self._starve_seconds:
                self._report_overtaken(call, at)

    def _find_overtaken_call(self, call: Call, at: float) -> None:
        if call.overtaken is None:
            return
        since, steps = call.overtaken
        longest_answer = max(request.shape.max_new_tokens for request in call.requests)
        if at - since > self._starve_seconds and self._work.decode_steps - steps > longest_answer:
            self._report_overtaken(call, at)

    def _report_overtaken(self, call: Call, at: float) -> None:
        assert call.overtaken is not None
        self._report(call, OVERTAKEN, f"{at - call.overtaken[0]:.1f} s after one that was sent later was served", at)

    def _idle(self, call: Call, at: float) -> float:
        """For how long the server has stood idle with this call as the oldest, as far as can be told."""
        if call is not self._head or (self._prefilling and self._work.prefill_batches != call.work.prefill_batches):
            return 0.0
        return at - max(self._moved_at, self._head_since, call.at)

    def _choose_head(self, at: float) -> None:
        head = next((call for call in self._open.values() if not call.given_up), None)
        if head is not self._head:
            self._head, self._head_since = head, at

    def _report(self, call: Call, cause: str, how: str, at: float) -> None:
        if call.reported:
            return
        call.reported = True
        longest = call.longest.shape
        among = f", the longest of {len(call.requests)} in one call" if len(call.requests) > 1 else ""
        self._occurrences.append(
            Occurrence(
                FindingKind.STARVED,
                cause,
                f"a prompt of {longest.prompt_tokens:,} tokens for {longest.max_new_tokens:,} new ones{among} got none "
                f"in {at - call.at:.1f} s; {how}",
                at - self._began,
                longest.prompt_tokens,
                longest.max_new_tokens,
            )
        )
