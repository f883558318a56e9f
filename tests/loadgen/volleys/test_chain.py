"""Chains: on a large pool one volley hits many cells, all of them in steps that the model tells."""

from __future__ import annotations

import pytest

from loadgen.coverage import Cell, Coverage, cell_of
from loadgen.sglang.pages import Pool
from loadgen.sglang.server import ServerConfiguration
from loadgen.volleys.chain import Chains
from loadgen.volleys.planner import Planner, Volley

POOL = Pool(128, 128)


def chains(overlap: bool, seed: int = 1) -> tuple[Chains, frozenset[Cell]]:
    cells = Coverage(ServerConfiguration(POOL, overlap)).reachable_tight
    return Chains(Planner(POOL, overlap, cells, 8192, seed), cells, seed), cells


def first_volley(chains: Chains, wanted: frozenset[Cell]) -> Volley:
    return next(volley for _ in range(2000) if (volley := chains.propose(wanted, 1)) is not None)


@pytest.mark.parametrize("overlap", [True, False])
def test_one_volley_hits_many_cells_and_fills_the_pool_once(overlap: bool) -> None:
    chain, cells = chains(overlap)
    volley = first_volley(chain, cells)
    hit = {cell_of(step) for step in volley.foreseen}
    assert volley.cells <= hit
    assert len(volley.cells) >= 10
    # The rows that go on end with the last cell, or nearly so.
    assert len(volley.foreseen) <= POOL.page_size
    assert sum(step.tight for step in volley.foreseen) >= 0.15 * len(volley.foreseen)


def test_only_wanted_cells_are_aimed_at() -> None:
    chain, cells = chains(True)
    wanted = frozenset(cell for cell in cells if cell.after.value == "decode")
    assert first_volley(chain, wanted).cells <= wanted


def test_a_chain_can_be_sent_before_it_is_complete() -> None:
    chain, cells = chains(True)
    assert chain.as_it_is(1) is None
    volley = None
    for _ in range(500):
        assert chain.propose(cells, 1) is None
        volley = chain.as_it_is(3)
        if volley is not None:
            break
    assert volley is not None
    assert len(volley.cells) == 3
    assert volley.cells <= {cell_of(step) for step in volley.foreseen}


def test_the_same_seed_gives_the_same_chain_and_another_seed_another() -> None:
    volleys = []
    for seed in (1, 1, 2):
        chain, cells = chains(True, seed)
        volley = None
        while volley is None:
            chain.propose(cells, 1)
            volley = chain.as_it_is(2)
        volleys.append(volley.shapes)
    assert volleys[0] == volleys[1] != volleys[2]


def test_nothing_is_aimed_at_when_nothing_is_wanted() -> None:
    chain, _ = chains(True)
    assert not chain.can_propose(frozenset())
    assert chain.propose(frozenset(), 4) is None
