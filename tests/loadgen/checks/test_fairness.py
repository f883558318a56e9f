"""Claims about fairness: who starves is accused, and who waits in a fair queue, or for a slow server, never is."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from loadgen.checks.fairness import NEVER_ADMITTED, OVERTAKEN, Call, Fairness, Work
from loadgen.checks.findings import Occurrence
from loadgen.http.stream import TokenTimes
from loadgen.requests.outcome import Completion, RequestOutcome
from loadgen.requests.planned_request import PlannedRequest
from loadgen.sglang.shape import Shape

STARVE = 10.0
TICK = 0.05


class Server:
    """A server whose work and answers a test decides, and the clock of both."""

    def __init__(self) -> None:
        self.now = 100.0
        self.work = Work()
        self.fairness = Fairness(STARVE)
        self.taken_back: list[Call] = []
        self.fairness.look(self.now, self.work)

    def send(self, *shapes: Shape, streamed: bool = False) -> Call:
        tokens = TokenTimes(self.now) if streamed else None
        return self.fairness.call_started([PlannedRequest(shape) for shape in shapes], self.now, tokens)

    def end(self, call: Call, outcome: RequestOutcome = RequestOutcome.DONE) -> None:
        self.fairness.call_ended(call, [Completion(outcome, self.now - call.at)] * len(call.requests), self.now)

    def passes(self, seconds: float, works: Callable[[Work], Work] | None = None) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += TICK
            self.work = works(self.work) if works else self.work
            for call in self.fairness.look(self.now, self.work):
                self.taken_back.append(call)
                self.end(call, RequestOutcome.CANCELLED)

    @property
    def found(self) -> list[Occurrence]:
        return self.fairness.take()


def decoding(work: Work) -> Work:
    return Work(work.decode_steps + 20, work.prefill_batches, work.retractions)


def serving(work: Work) -> Work:
    return Work(work.decode_steps + 20, work.prefill_batches + 1, work.retractions)


def prefilling(work: Work) -> Work:
    return Work(work.decode_steps, work.prefill_batches + 1, work.retractions)


def retracting(work: Work) -> Work:
    return Work(work.decode_steps + 20, work.prefill_batches + 1, work.retractions + 1)


def test_a_client_that_gives_up_on_an_idle_server_was_starved_if_it_serves_others_then() -> None:
    server = Server()
    served = server.send(Shape(1, 128))
    server.passes(0.3, decoding)
    never, behind = server.send(Shape(3970, 1), streamed=True), server.send(Shape(1, 2), streamed=True)
    server.end(served)
    server.passes(2.0)
    server.end(never, RequestOutcome.HUNG_UP)
    assert server.found == [], "nobody knows yet whether the server lives"
    server.passes(3.0)
    server.passes(0.1, serving)
    server.end(behind)
    (found,) = server.found
    assert (found.cause, found.prompt_tokens, found.max_new_tokens) == (NEVER_ADMITTED, 3970, 1)
    assert "stood idle for 2.0 s" in found.detail
    assert server.taken_back == []


def test_a_server_that_never_works_again_hangs_and_starves_nobody() -> None:
    server = Server()
    calls = [server.send(Shape(50, 8)) for _ in range(3)]
    server.passes(0.3, decoding)
    server.passes(14.5)
    assert server.taken_back == calls, "each in turn is taken back, to see whether it was it"
    assert server.fairness.suspects == 3, "a watch has to count them as waiting"
    assert server.found == []


def test_the_oldest_is_taken_back_from_an_idle_server_and_was_starved_if_that_helps() -> None:
    server = Server()
    server.passes(0.3, decoding)
    never, behind = server.send(Shape(3970, 9)), server.send(Shape(5, 5), Shape(6, 6))
    server.passes(STARVE + 0.5)
    assert server.taken_back == [never]
    server.passes(0.2, serving)
    server.end(behind)
    (found,) = server.found
    assert (found.cause, found.prompt_tokens) == (NEVER_ADMITTED, 3970)
    assert server.fairness.suspects == 0


def test_a_server_that_resumes_much_later_was_not_helped_by_what_was_taken_back() -> None:
    server = Server()
    server.passes(0.3, decoding)
    server.send(Shape(50, 8))
    server.passes(STARVE + 9.5)
    server.passes(0.2, serving)
    assert server.taken_back and server.found == []


def test_a_prefill_that_takes_long_is_no_idleness() -> None:
    server = Server()
    long = server.send(Shape(30_000, 8), streamed=True)
    server.passes(0.05, prefilling)
    server.passes(3 * STARVE)
    assert server.taken_back == []
    server.end(long, RequestOutcome.HUNG_UP)
    server.passes(0.2, serving)
    assert server.found == []


def test_a_pause_of_the_machine_is_no_idleness() -> None:
    server = Server()
    server.passes(0.3, decoding)
    waiting = server.send(Shape(50, 8), streamed=True)
    server.now += 5.0
    server.passes(0.5)
    server.end(waiting, RequestOutcome.HUNG_UP)
    server.passes(0.2, serving)
    assert server.found == []


def test_a_client_that_hangs_up_while_others_are_served_in_turn_is_not_starved() -> None:
    server = Server()
    first = server.send(Shape(50, 400), streamed=True)
    assert first.tokens is not None
    first.tokens.seen(1, server.now)
    waiting = server.send(Shape(50, 8), streamed=True)
    server.passes(5.0, decoding)
    server.end(waiting, RequestOutcome.HUNG_UP)
    server.end(first)
    server.passes(0.2, serving)
    assert server.found == []


def test_a_stream_without_a_token_long_after_one_sent_later_had_its_own_is_starved() -> None:
    server = Server()
    waiting, later = server.send(Shape(50, 8), streamed=True), server.send(Shape(60, 900), streamed=True)
    server.passes(1.0, decoding)
    assert later.tokens is not None
    later.tokens.seen(1, server.now)
    server.passes(STARVE - 1, decoding)
    assert server.found == []
    server.passes(1.5, decoding)
    (found,) = server.found
    assert (found.cause, found.prompt_tokens) == (OVERTAKEN, 50)
    server.end(waiting)
    server.passes(STARVE, decoding)
    assert server.found == [], "it is told once"


def test_a_call_that_is_open_long_after_a_later_one_was_complete_is_starved() -> None:
    server = Server()
    server.send(Shape(50, 8), Shape(70, 9))
    later = server.send(Shape(60, 8))
    server.passes(1.0, decoding)
    server.end(later)
    server.passes(STARVE + 0.5, decoding)
    (found,) = server.found
    assert (found.cause, found.prompt_tokens) == (OVERTAKEN, 70)
    assert "the longest of 2 in one call" in found.detail


def test_a_long_request_in_one_call_with_others_is_not_starved_while_it_decodes() -> None:
    server = Server()
    server.send(Shape(50, 100_000), Shape(70, 9))
    server.end(server.send(Shape(60, 8)))
    server.passes(3 * STARVE, decoding)
    assert server.found == []


def test_what_came_during_a_pause_of_the_machine_is_read_before_anybody_is_accused() -> None:
    server = Server()
    first, later = server.send(Shape(9, 9)), server.send(Shape(5, 5))
    stream, later_stream = server.send(Shape(9, 9), streamed=True), server.send(Shape(5, 5), streamed=True)
    later_stream.tokens.seen(1, server.now)
    server.end(later)
    server.passes(1, decoding)
    server.now += 3 * STARVE
    server.passes(TICK, decoding)
    server.end(first)
    server.end(stream)
    server.passes(2 * STARVE, decoding)
    assert server.found == []


def test_a_pause_of_the_machine_saves_nobody_who_starves_after_it() -> None:
    server = Server()
    server.send(Shape(9, 9))
    server.end(server.send(Shape(5, 5)))
    server.now += 3 * STARVE
    server.passes(STARVE + 2, decoding)
    (found,) = server.found
    assert found.cause == OVERTAKEN


def test_a_retraction_sends_a_request_behind_those_that_waited() -> None:
    server = Server()
    retracted = server.send(Shape(50, 8))
    later = [server.send(Shape(60, 8)) for _ in range(30)]
    for call in later:
        server.passes(1.0, retracting)
        server.end(call)
    server.passes(1.0, serving)
    server.end(retracted)
    assert server.found == [] and server.taken_back == []


@given(
    st.lists(st.tuples(st.integers(1, 3), st.floats(0.0, 2.0), st.floats(0.1, 3.0)), min_size=1, max_size=30),
    st.booleans(),
)
def test_nobody_starves_in_a_queue_that_is_served_in_order(
    plan: list[tuple[int, float, float]], streamed: bool
) -> None:
    """However long it is, and however slowly each is served."""
    server = Server()
    calls = [server.send(*[Shape(50, 40)] * (1 if streamed else count), streamed=streamed) for count, _, _ in plan]
    for call, (_, prefill, decode) in zip(calls, plan, strict=True):
        server.passes(TICK, prefilling)
        server.passes(prefill)
        if call.tokens is not None:
            call.tokens.seen(1, server.now)
        server.passes(decode, decoding)
        server.end(call)
    assert server.found == [] and server.taken_back == []
