"""SGLang's own allocator class at the edge of the pool, without a server, and the variants of it."""

from __future__ import annotations

import functools
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from service.engine.overlay import copy_plugin
from tests.real.launches import python_of

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

HERE = Path(__file__).parent
UPSTREAM = HERE / "upstream" / "test_npu_alloc_decode_edge.py"
TESTS = UPSTREAM.read_text().count("    def test_")
TRAILING = {
    line.split()[1].partition("(")[0] for line in UPSTREAM.read_text().splitlines() if "def test_tight_t" in line
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a release's interpreter says, asked once a release: importing SGLang takes long."""
    plugin = tmp_path_factory.mktemp("overlay")
    copy_plugin(plugin)

    @functools.cache
    def ask(release: str) -> dict[str, Any]:
        ran = subprocess.run(
            [str(python_of(release)), str(HERE / "allocator_edge.py"), str(UPSTREAM)],
            env={**os.environ, "PYTHONPATH": str(plugin)},
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr[-4000:]
        answer: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
        return answer

    return ask


def out_of_bounds(failed: dict[str, str]) -> bool:
    return all(line.startswith("IndexError: index ") and "out of bounds" in line for line in failed.values())


def test_there_are_cases_of_each_kind() -> None:
    assert TESTS == 19 and len(TRAILING) == 7


def test_0_5_23_passes_every_case(answers: Any) -> None:
    installed = answers("0.5.23")["variants"]["installed"]
    assert (installed["ran"], installed["failed"]) == (TESTS, {})


def test_0_5_18_reads_past_the_free_list_in_exactly_the_tight_cases_with_trailing_rows(answers: Any) -> None:
    installed = answers("0.5.18")["variants"]["installed"]
    assert (installed["ran"], set(installed["failed"])) == (TESTS, TRAILING)
    assert out_of_bounds(installed["failed"])


@pytest.mark.parametrize("release", ["0.5.23", "0.5.18"])
def test_patched_passes_every_case_and_unpatched_fails_as_0_5_18_does(answers: Any, release: str) -> None:
    variants = answers(release)["variants"]
    assert (variants["patched"]["failed"], variants["patched"]["clamp"]) == ({}, True)
    assert (set(variants["unpatched"]["failed"]), variants["unpatched"]["clamp"]) == (TRAILING, False)
    assert out_of_bounds(variants["unpatched"]["failed"])


@pytest.mark.parametrize(("release", "replaced"), [("0.5.23", "unpatched"), ("0.5.18", "patched")])
def test_only_a_variant_that_the_release_is_not_already_takes_the_classs_place(
    answers: Any, release: str, replaced: str
) -> None:
    variants = answers(release)["variants"]
    assert {name for name, variant in variants.items() if not variant["is_installed"]} == {replaced}
    assert variants[replaced]["name"] == f"{replaced.capitalize()}NPUPagedTokenToKVPoolAllocator"


@pytest.mark.parametrize("release", ["0.5.23", "0.5.18"])
def test_away_from_the_edge_the_variants_hand_out_what_sglangs_own_class_does(answers: Any, release: str) -> None:
    assert all(variant["like_installed"] for variant in answers(release)["variants"].values())


@pytest.mark.parametrize("release", ["0.5.23", "0.5.18"])
@pytest.mark.parametrize(
    ("cls", "reason"),
    [
        ("OtherArguments", "alloc_decode failed on a step with pages to spare: TypeError("),
        ("OtherConstructor", "alloc_decode failed on a step with pages to spare: TypeError("),
        ("FailsWithSlack", "alloc_decode failed on a step with pages to spare: IndexError("),
        ("OtherLocations", "alloc_decode handed out ([29, 23, 33, 16], [22, 32], None), expected ("),
        ("NeverShort", "alloc_decode handed out ([28, 22, 32, 15], [21, 31], [3]), expected ("),
        ("FailsOtherwiseWhenTight", "alloc_decode failed on a tight step: RuntimeError("),
        ("WrongWhenTight", "alloc_decode handed out [3, 21] on a tight step, expected [28, 22]"),
    ],
)
def test_a_class_that_does_not_behave_as_expected_is_refused(answers: Any, release: str, cls: str, reason: str) -> None:
    assert answers(release)["refused"][cls].startswith(reason)
