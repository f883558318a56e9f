"""The shortest case that makes a critical step on the model of SGLang's scheduler: worth a trial on a real engine."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from ..requests.planned_request import PlannedRequest
from ..scenarios.base import Observation
from ..scenarios.waves.scenario import Waves, WavesOptions
from ..sglang.rules import Rules
from ..sglang.scheduler import NotServable, OutOfPages, Scheduler
from ..sglang.server import ServerConfiguration
from .case import Case
from .search import search

# Iterations of the scheduler from one look at it to the next, and from a wave's sending to its arrival: a quick client
# on an idle machine, and a slow one. What depends on the difference is of no use on a real server.
_CLIENTS = ((1, 1), (4, 2), (11, 7))
_ITERATIONS_A_SECOND = 400
_MOST_ITERATIONS = 50_000
_PATIENCE = 20_000
_USUAL_PREFILL_SIZE = 8192


@dataclass(frozen=True)
class ServerModel:
    """How the model is set up.

    Attributes:
        rules: those of the server's release.
        chunked_prefill_size: tokens.
    """

    overlap: bool
    rules: Rules
    chunked_prefill_size: int
    prefix_cache: bool = False

    def foresees(self, case: Case) -> bool:
        """Whether a step in this case is critical, however quick the client is.

        Hang-ups and shared segments are not modelled.
        """
        try:
            return all(self._critical(case, poll, travel) for poll, travel in _CLIENTS)
        except (NotServable, OutOfPages):
            return False

    def shortest(self, case: Case, seconds: float, clock: Callable[[], float] = time.monotonic) -> Case | None:
        """The shortest case that it finds from this one within so many seconds; None when it foresees no crash."""
        deadline = clock() + seconds
        trials = search(case, patience=_PATIENCE, rules=self.rules)
        proposal = next(trials)
        best = None
        while clock() < deadline:
            crashes = self.foresees(proposal.case)
            if crashes:
                best = proposal.case
            try:
                proposal = trials.send(crashes)
            except StopIteration:
                break
        return best

    def _critical(self, case: Case, poll: int, travel: int) -> bool:
        server = Scheduler(
            case.pool,
            overlap=self.overlap,
            rules=self.rules,
            chunked_prefill_size=self.chunked_prefill_size,
            prefix_cache=self.prefix_cache,
        )
        configuration = ServerConfiguration(case.pool, self.overlap, self.prefix_cache, rules=self.rules)
        waves = Waves(configuration, WavesOptions(waves=case.written()), seed=0)
        under_way: deque[tuple[int, tuple[PlannedRequest, ...]]] = deque()
        requests_sent = seen = checked = 0
        for iteration in range(_MOST_ITERATIONS):
            if iteration % poll == 0:
                steps = server.steps[seen:]
                seen += len(steps)
                open_requests = requests_sent - len(server.ended)
                if waves.finished and not open_requests:
                    return False
                wave = waves.next_wave(Observation(iteration / _ITERATIONS_A_SECOND, steps, open_requests))
                if wave.requests:
                    under_way.append((iteration + travel, wave.requests))
                    requests_sent += len(wave.requests)
            while under_way and under_way[0][0] <= iteration:
                for request in under_way.popleft()[1]:
                    server.submit(request.shape)
            server.iterate()
            if any(step.critical for step in server.steps[checked:]):
                return True
            checked = len(server.steps)
        return False


def model_of(server: ServerConfiguration) -> ServerModel:
    """The model of a server."""
    size = server.chunked_prefill_size
    if size is None:
        size = _USUAL_PREFILL_SIZE
    elif size < 1:
        size = server.pool.tokens  # whole prompts
    return ServerModel(server.overlap, server.rules, size, server.prefix_cache)
