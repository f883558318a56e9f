"""Claims about waivers: one covers what it says and nothing else, and a bad one is refused with what is allowed."""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.checks.findings import FindingKind, Occurrence
from service.execution.ledger import Ledger, counts
from service.spec.conditions import InvalidCondition
from service.spec.faults import InvalidSpec
from service.spec.parsing import parse_spec
from service.spec.waivers import Waiver, parse_condition
from service.spec.yaml_text import dump_yaml

NOW = datetime(2026, 11, 30, tzinfo=timezone.utc)
FACTS = {
    "prompt_tokens": 3970,
    "max_new_tokens": 1,
    "page_size": 128,
    "pool_pages": 32,
    "scenario": "extend",
    "release": "0.5.23",
    "allocator": "installed",
    "profile": "rehearsal",
}
WAIVER = {
    "kind": "starved",
    "when": "prompt_tokens > 3967 and release <= 0.5.23",
    "reason": "accepted and never admitted",
    "link": "https://example.org/issues/1",
}


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ("prompt_tokens > 3967", True),
        ("prompt_tokens > 3970", False),
        ("prompt_tokens>=3970 and max_new_tokens == 1", True),
        ("prompt_tokens >= 3970 and max_new_tokens == 2", False),
        ("scenario == extend", True),
        ("scenario != extend", False),
        ("release == 0.5.23", True),
        ("release == 0.5.23.0", True),
        ("release < 0.5.24", True),
        ("release < 0.5.3", False),
        ("release >= 0.6", False),
        ("scenario == 'extend' and profile == \"rehearsal\"", True),
        ("allocator == installed and profile == rehearsal and page_size == 128 and pool_pages <= 32", True),
    ],
)
def test_a_condition_holds_for_what_it_says(when: str, holds: bool) -> None:
    assert parse_condition(when).holds(FACTS) is holds


@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_a_condition_on_lengths_holds_as_numbers_compare(bound: int, tokens: int) -> None:
    for comparison, expected in (("<", tokens < bound), (">=", tokens >= bound), ("==", tokens == bound)):
        assert parse_condition(f"prompt_tokens {comparison} {bound}").holds({"prompt_tokens": tokens}) is expected


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["prompt_tokens", "max_new_tokens"]),
            st.sampled_from(["==", "!=", ">=", "<=", ">", "<"]),
            st.integers(0, 10**9),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_a_condition_that_is_written_down_reads_back_as_the_same(clauses: list[tuple[str, str, int]]) -> None:
    condition = parse_condition("  and ".join(f"{field}{comparison}{value}" for field, comparison, value in clauses))
    assert parse_condition(str(condition)) == condition


@given(
    st.lists(st.tuples(st.sampled_from(["==", "!=", ">=", "<=", ">", "<"]), st.integers(0, 12)), min_size=1, max_size=4)
)
def test_a_condition_is_contradictory_just_when_nothing_meets_it(clauses: list[tuple[str, int]]) -> None:
    condition = parse_condition(" and ".join(f"prompt_tokens {comparison} {bound}" for comparison, bound in clauses))
    assert condition.contradictory is not any(condition.holds({"prompt_tokens": tokens}) for tokens in range(1, 15))


@pytest.mark.parametrize(
    "when",
    [
        "release > 0.5.23 and release < 0.5.24",
        "release > 0.5.23 and release < 0.5.23.post1",
        "release > 0.5.23rc1 and release < 0.5.23",
        "release != 0.5.23 and scenario != tight",
        "release < 0.5.18",
    ],
)
def test_what_some_release_meets_is_not_taken_for_a_contradiction(when: str) -> None:
    assert Waiver.model_validate(WAIVER | {"when": when}).when == when


def test_what_is_not_known_of_a_finding_holds_for_nothing() -> None:
    assert not parse_condition("prompt_tokens != 5").holds({})
    for comparison in ("==", "!=", "<", "<=", ">", ">="):
        for release in ("unknown", "main", "", "0.0.0.dev1+gabc", "0+unknown"):
            assert not parse_condition(f"release {comparison} 0.5.23").holds({"release": release})


@pytest.mark.parametrize(
    ("release", "before", "equal"),
    [
        ("v0.5.24", False, False),
        ("v0.5.23", True, True),
        ("0.5.23+cpu", True, True),
        ("0.5.23.post1", False, False),
        ("0.5.23rc1", True, False),
        ("0.5.24.dev3+gabc", False, False),
        ("0.5.9", True, False),
    ],
)
def test_releases_are_ordered_as_on_pypi(release: str, before: bool, equal: bool) -> None:
    assert parse_condition("release <= 0.5.23").holds({"release": release}) is before
    assert parse_condition("release == 0.5.23").holds({"release": release}) is equal


@pytest.mark.parametrize(
    ("when", "said"),
    [
        ("", "no comparison"),
        ("always", "no comparison"),
        ("prompt_tokens > 3967 or release == 0.5.23", "no comparison"),
        ("prompt_tokens > 3967 and", "no comparison"),
        ("prompt_tokens => 3967", "no comparison"),
        ("__class__ == 1", "unknown field '__class__'"),
        ("tokens > 3", "allowed: prompt_tokens, max_new_tokens, page_size, pool_pages, scenario"),
        ("prompt_tokens > many", "a whole number, not with 'many'"),
        ("release == new", "a version such as 0.5.23"),
        ("release == 0.0.0", "a version such as 0.5.23"),
        ("scenario == tihgt", "'tihgt' is no scenario; allowed: tight, "),
        ("profile == moon", "'moon' is no profile; allowed: "),
        ("allocator == moon", "'moon' is no allocator; allowed: installed, "),
        ("scenario > extend", "compared with == or !="),
        ("prompt_tokens > 1 and " * 20 + "prompt_tokens > 1", "at most 300 characters"),
    ],
)
def test_a_bad_condition_is_refused_with_what_is_allowed(when: str, said: str) -> None:
    with pytest.raises(InvalidCondition, match=said.replace("(", "\\(")):
        parse_condition(when)


@given(st.text(max_size=60))
def test_no_text_does_anything_but_hold_or_be_refused(when: str) -> None:
    with contextlib.suppress(InvalidCondition):
        parse_condition(when).holds(FACTS)


@pytest.mark.parametrize(
    ("change", "field", "said"),
    [
        ({"kind": "crash"}, "waivers.0.kind", "must be 'wrong_output' or 'starved'"),
        ({"when": "tokens > 3"}, "waivers.0.when", "unknown field 'tokens'"),
        ({"reason": " \n"}, "waivers.0.reason", "nothing but blanks"),
        ({"when": "prompt_tokens > 5 and prompt_tokens < 3"}, "waivers.0.when", "can never hold"),
        ({"when": "prompt_tokens > 5 and prompt_tokens < 6"}, "waivers.0.when", "can never hold"),
        ({"when": "scenario == tight and scenario == mixed"}, "waivers.0.when", "can never hold"),
        ({"when": "release > 0.5.23 and release <= 0.5.23"}, "waivers.0.when", "can never hold"),
        ({"reason": ""}, "waivers.0.reason", "at least 1 character"),
        ({"link": "see the issue"}, "waivers.0.link", "begins with http://"),
        ({"until": "2027"}, "waivers.0.until", "allowed: kind, when, reason, link"),
    ],
)
def test_a_bad_waiver_is_refused_by_its_field(change: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        parse_spec({"waivers": [WAIVER | change]})
    (fault,) = refused.value.faults
    assert fault.field == field and said in fault.message


@pytest.mark.parametrize("missing", list(WAIVER))
def test_a_waiver_needs_all_that_it_is_made_of(missing: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        parse_spec({"waivers": [{key: value for key, value in WAIVER.items() if key != missing}]})
    assert [fault.field for fault in refused.value.faults] == [f"waivers.0.{missing}"]


def test_waivers_are_part_of_the_spec_file() -> None:
    spec = parse_spec({"waivers": [WAIVER]})
    assert "prompt_tokens > 3967 and release <= 0.5.23" in dump_yaml(spec)
    assert parse_spec({"waivers": None}).waivers == ()


def found(prompt: int, kind: FindingKind = FindingKind.STARVED, cause: str = "never admitted") -> Occurrence:
    return Occurrence(kind, cause, f"a prompt of {prompt} tokens", 1.5, prompt, 1)


def test_findings_are_told_once_and_counted_after_that() -> None:
    ledger = Ledger((), {})
    first = ledger.add(found(4000), NOW)
    assert first is not None and (first.count, first.prompt_tokens, first.waived) == (1, 4000, None)
    assert ledger.add(found(3990), NOW + timedelta(seconds=5)) is None
    assert ledger.add(found(50, cause="overtaken"), NOW) is not None
    assert ledger.add(found(50, FindingKind.WRONG_OUTPUT), NOW) is not None
    never_admitted = ledger.findings[0]
    assert (never_admitted.count, never_admitted.detail) == (2, "a prompt of 4000 tokens")
    assert (never_admitted.shortest_prompt_tokens, never_admitted.longest_prompt_tokens) == (3990, 4000)
    assert never_admitted.last_at - never_admitted.at == timedelta(seconds=5)
    assert counts(ledger.findings) == {"findings": 4, "waived_findings": 0}


def test_a_waived_finding_is_kept_apart_with_its_reason_and_its_link() -> None:
    ledger = Ledger([Waiver.model_validate(WAIVER)], {"release": "0.5.23"})
    for prompt in (3960, 3968, 3999):
        ledger.add(found(prompt), NOW)
    ledger.add(found(3999, FindingKind.WRONG_OUTPUT), NOW)
    assert counts(ledger.findings) == {"findings": 2, "waived_findings": 2}
    waived = [finding for finding in ledger.findings if finding.waived is not None]
    assert [(one.waived, one.link, one.count) for one in waived] == [(WAIVER["reason"], WAIVER["link"], 2)]


@given(st.lists(st.tuples(st.sampled_from(list(FindingKind)), st.sampled_from("ab"), st.integers(1, 5000))))
def test_no_finding_is_lost_and_the_list_stays_short(many: list[tuple[FindingKind, str, int]]) -> None:
    ledger = Ledger([Waiver.model_validate(WAIVER)], {"release": "0.5.23"})
    for kind, cause, prompt in many:
        ledger.add(found(prompt, kind, cause), NOW)
    assert sum(counts(ledger.findings).values()) == len(many)
    assert len(ledger.findings) <= 6
