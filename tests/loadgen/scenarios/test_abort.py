"""`abort` on the model of SGLang's scheduler, which knows no aborts: the load beneath them is at the edge."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from loadgen.requests.planned_request import PlannedRequest
from loadgen.scenarios.abort import Abort, AbortOptions
from loadgen.scenarios.base import Observation
from loadgen.sglang.pages import Pool
from loadgen.sglang.scheduler import Scheduler, check_servable
from loadgen.sglang.server import ServerConfiguration

from ..modelled_load import ModelledLoad


def requests(pool: Pool, options: AbortOptions, seed: int = 1, waves: int = 40) -> list[PlannedRequest]:
    scenario = Abort(ServerConfiguration(pool), options, seed)
    return [request for _ in range(waves) for request in scenario.next_wave(Observation(0, (), 0)).requests]


@given(st.builds(Pool, st.integers(32, 256), st.integers(7, 2000)), st.integers(0, 99))
def test_every_request_can_be_served_and_is_hung_up_on_before_it_ends_or_not_at_all(pool: Pool, seed: int) -> None:
    options = AbortOptions()
    assume(not Abort.faults(pool, options))
    for request in requests(pool, options, seed, waves=10):
        check_servable(request.shape, pool)
        length = request.shape.prompt_tokens + request.shape.max_new_tokens
        assert length <= Abort.longest_request(pool, options)
        assert request.hang_up_tokens is None or 1 <= request.hang_up_tokens < request.shape.max_new_tokens


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_the_share_of_clients_that_hang_up_is_as_asked_for_and_they_do_it_in_every_way(share: float) -> None:
    sent = requests(Pool(128, 32), AbortOptions(share=share), waves=200)
    hung_up = [request for request in sent if request.hangs_up]
    assert len(hung_up) / len(sent) == pytest.approx(share, abs=0.05)
    before_it_crosses = [r for r in hung_up if r.hang_up_tokens == r.shape.decode_steps]
    earlier = [r for r in hung_up if r.hang_up_tokens is not None and r.hang_up_tokens < r.shape.decode_steps]
    soon = [r for r in hung_up if r.hang_up_seconds is not None]
    assert min(map(len, (before_it_crosses, earlier, soon))) > len(hung_up) / 5


@pytest.mark.parametrize(("pages", "fewest_critical"), [(32, 0.05), (256, 0.02)])
@pytest.mark.parametrize("overlap", [True, False])
def test_the_load_comes_to_the_edge_again_and_again(pages: int, fewest_critical: float, overlap: bool) -> None:
    pool = Pool(128, pages)
    scheduler = Scheduler(pool, overlap=overlap)
    steps = ModelledLoad(Abort(ServerConfiguration(pool, overlap), AbortOptions(), seed=1), scheduler).run(1500)
    assert sum(step.critical for step in steps) > fewest_critical * len(steps)
    assert scheduler.retractions > 0


def test_a_pool_on_which_it_cannot_work_is_refused() -> None:
    (misfit,) = Abort.faults(Pool(128, 6), AbortOptions())
    assert (misfit.field, misfit.value) == ("engine.pool_pages", 6)
    assert misfit.message == "too few for requests to take turns; abort needs at least 7"


def test_a_seed_gives_the_same_requests() -> None:
    assert requests(Pool(128, 32), AbortOptions(), seed=3) == requests(Pool(128, 32), AbortOptions(), seed=3)
    assert requests(Pool(128, 32), AbortOptions(), seed=3) != requests(Pool(128, 32), AbortOptions(), seed=4)
