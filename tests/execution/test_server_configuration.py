from __future__ import annotations

import argparse
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.sglang.pages import Pool
from loadgen.sglang.server import ServerConfiguration
from service.engine.process.arguments import OWNED, OWNED_WITH_TINY_MODEL
from service.engine.registry import EngineRegistry
from service.execution.launching import plan_for
from service.execution.preflight import prepare
from service.execution.server_configuration import (
    INCREMENTAL_STREAMS,
    INCREMENTAL_STREAMS_BEFORE,
    MOST_RUNNING,
    OPTIONS,
    OVERLAP_OFF,
    PREFILL_SIZE,
    PREFIX_CACHE_OFF,
    server_configuration,
)
from service.home import Home
from service.spec.parsing import parse_spec
from tests.engine.interpreters import answering

POOL = Pool(128, 32)
WITH_NUMBER = (MOST_RUNNING, PREFILL_SIZE)
OTHERS = {*OWNED, *OWNED_WITH_TINY_MODEL, "--tp", "--log-level", "--schedule-conservativeness"} - {"--help"}


class Refused(Exception):
    """argparse would end the process."""


class Argparse(argparse.ArgumentParser):
    """SGLang's parser, as far as the project knows its options."""

    def __init__(self) -> None:
        super().__init__(add_help=False)
        for name in OPTIONS:
            if name in WITH_NUMBER:
                self.add_argument(name, type=int)
            else:
                self.add_argument(name, action="store_true")
        for name in sorted(OTHERS):
            self.add_argument(name, nargs="*")

    def error(self, message: str) -> NoReturn:
        raise Refused(message)

    def configuration(self, arguments: list[str]) -> ServerConfiguration:
        values = {f"--{name.replace('_', '-')}": value for name, value in vars(self.parse_args(arguments)).items()}
        return ServerConfiguration(
            POOL,
            overlap=not values[OVERLAP_OFF],
            prefix_cache=not values[PREFIX_CACHE_OFF],
            max_running_requests=values[MOST_RUNNING],
            chunked_prefill_size=values[PREFILL_SIZE],
            incremental_streams=values[INCREMENTAL_STREAMS] or values[INCREMENTAL_STREAMS_BEFORE],
        )


ARGPARSE = Argparse()


def accepted(name: str, beginning: str) -> bool:
    try:
        ARGPARSE.parse_args([beginning, "1"] if name in WITH_NUMBER else [beginning])
    except Refused:
        return False
    return True


ABBREVIATIONS = [
    (name, name[:length]) for name in OPTIONS for length in range(3, len(name) + 1) if accepted(name, name[:length])
]


@st.composite
def words(draw: st.DrawFn) -> list[str]:
    """One option as it may be written."""
    if draw(st.integers(0, 3)) == 0:
        return ["--schedule-conservativeness", "0"]
    name, written = draw(st.sampled_from(ABBREVIATIONS))
    if name not in WITH_NUMBER:
        return [written]
    value = str(draw(st.integers(-1, 20_000)))
    return draw(st.sampled_from([[written, value], [f"{written}={value}"]]))


@given(st.lists(words(), max_size=6))
def test_every_abbreviation_that_argparse_takes_gives_the_same_configuration(options: list[list[str]]) -> None:
    arguments = [word for option in options for word in option]
    assert server_configuration(POOL, arguments) == ServerConfiguration(
        **{**vars(ARGPARSE.configuration(arguments)), "rules": server_configuration(POOL, []).rules}
    )


@pytest.mark.parametrize("name", OPTIONS)
def test_abbreviations_are_among_the_claims(name: str) -> None:
    assert (name, name) in ABBREVIATIONS and (name, name[:-1]) in ABBREVIATIONS


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        (["--disable-overlap-sched"], {"overlap": False}),
        (["--disable-radix"], {"prefix_cache": False}),
        (["--max-running-req", "16"], {"max_running_requests": 16}),
        (["--chunked-prefill-size=512"], {"chunked_prefill_size": 512}),
        (["--chunked-prefill-size", "-1"], {"chunked_prefill_size": -1}),
        (["--incremental-stream"], {"incremental_streams": True}),
        (["--stream-output"], {"incremental_streams": True}),
        (["--disable-"], {}),
        (["--max-running-requests", "many"], {}),
        (["--tp", "2"], {}),
    ],
)
def test_what_is_written_is_read_as_sglang_reads_it(arguments: list[str], read: dict[str, object]) -> None:
    expected = ServerConfiguration(**{"pool": POOL, "overlap": True, "prefix_cache": True, **read})  # type: ignore[arg-type]
    assert server_configuration(POOL, arguments) == expected


def test_a_server_has_overlap_and_a_prefix_cache_unless_its_arguments_say_otherwise() -> None:
    assert server_configuration(POOL, ["--tp", "2"]) == ServerConfiguration(POOL, overlap=True, prefix_cache=True)
    off = ["--disable-overlap-schedule", "--disable-radix-cache"]
    assert server_configuration(POOL, off) == ServerConfiguration(POOL, overlap=False, prefix_cache=False)


def test_of_the_arguments_for_the_largest_batch_the_last_counts() -> None:
    arguments = ["--max-running-requests", "8", "--max-running-requests=16"]
    assert server_configuration(POOL, arguments).max_running_requests == 16
    assert server_configuration(POOL, ["--max-running-requests"]).max_running_requests is None


@pytest.mark.parametrize("scenario", ["tight", "steady", "prefix"])
def test_preflight_knows_the_server_that_is_launched(tmp_path: Path, scenario: str) -> None:
    """The controller puts arguments of its own before a scenario's and a user's: they change nothing of it."""
    home = Home(tmp_path / "home").ensure()
    EngineRegistry(home).add("mine", answering(tmp_path / "engine" / "bin" / "python"))
    spec = parse_spec({"engine": {"args": ["--disable-ov", "--max-run=7"]}, "load": {"scenario": scenario}})
    prepared, faults = prepare(spec, home)
    assert prepared is not None, faults
    launched = plan_for(spec, prepared, tmp_path).argv
    assert server_configuration(prepared.server.pool, launched, prepared.server.rules) == prepared.server
    assert (prepared.server.overlap, prepared.server.max_running_requests) == (False, 7)
