"""Claims about the condition language, of which thresholds and waivers are made."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.spec.conditions import Condition, InvalidCondition, Language, can_hold
from service.spec.kinds import COMPARISONS, Count, Fraction, Kind, Number, Release, Size, Word

KINDS: dict[str, Kind] = {
    "seconds": Number(),
    "share": Fraction(),
    "steps": Count(),
    "tokens": Size(),
    "colour": Word(("red", "green", "blue")),
    "release": Release(),
}
LANGUAGE = Language(KINDS.get, ", ".join(KINDS), "field", "comparison", "FIELD COMPARISON VALUE", "tokens > 3", 300)

RELEASES = list(map("".join, itertools.product(("0.5", "0.5rc1", "0.5.1"), ("", ".post1"), ("", ".dev2"))))
# Those, and for each gap between two of them one that lies in it.
DENSE_RELEASES = list(
    map(
        "".join,
        itertools.product(
            ("0.4", "0.5rc1", "0.5", "0.5.1"),
            ("", ".post0", ".post1", ".post2"),
            ("", ".dev0", ".dev2", ".dev3"),
        ),
    )
)
# Bounds beside which every whole, half or quarter number of a small domain lies on one side or the other.
VALUES = {
    "seconds": st.integers(-2, 12).map(lambda n: f"{n / 4}"),
    "share": st.integers(-1, 6).map(lambda n: f"{n / 4}") | st.integers(-1, 6).map(lambda n: f"{25 * n}%"),
    "steps": st.integers(-2, 8).map(lambda n: f"{n / 2}"),
    "tokens": st.integers(0, 4).map(str),
    "colour": st.sampled_from(["red", "green", "blue"]),
    "release": st.sampled_from(RELEASES),
}
DOMAINS = {
    "seconds": [n / 8 for n in range(40)],
    "share": [n / 8 for n in range(9)],
    "steps": list(range(12)),
    "tokens": list(range(1, 8)),
    "colour": ["red", "green", "blue"],
    "release": DENSE_RELEASES,
}


def clauses_on(field: str) -> st.SearchStrategy[str]:
    return st.tuples(st.just(field), st.sampled_from(KINDS[field].comparisons), VALUES[field]).map(" ".join)


conditions = st.lists(st.sampled_from(sorted(KINDS)).flatmap(clauses_on), min_size=1, max_size=5).map(" and ".join)


@given(conditions)
def test_a_condition_that_is_written_down_reads_back_as_the_same(text: str) -> None:
    condition = LANGUAGE.condition(text)
    assert LANGUAGE.condition(str(condition)) == condition


@pytest.mark.parametrize("field", sorted(KINDS))
def test_comparisons_contradict_each_other_just_when_no_value_of_the_field_meets_them(field: str) -> None:
    @given(st.lists(clauses_on(field), min_size=1, max_size=4))
    def holds(texts: list[str]) -> None:
        condition = LANGUAGE.condition(" and ".join(texts))
        met = any(condition.holds({field: value}) for value in DOMAINS[field])
        assert condition.contradictory is not met

    holds()


@given(st.lists(clauses_on("tokens"), min_size=1, max_size=3), st.lists(clauses_on("colour"), min_size=1, max_size=3))
def test_a_contradiction_in_one_field_is_one_of_the_whole(tokens: list[str], colours: list[str]) -> None:
    apart = [LANGUAGE.condition(" and ".join(texts)).contradictory for texts in (tokens, colours)]
    mixed = " and ".join(text for pair in itertools.zip_longest(tokens, colours) for text in pair if text)
    assert LANGUAGE.condition(mixed).contradictory is any(apart)


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["seconds", "share", "steps"]))
def test_a_number_just_above_a_bound_is_told_from_it(bound: float, field: str) -> None:
    most = 1.0 if field == "share" else math.inf
    clauses = [LANGUAGE.comparison(f"{field} {comparison} {bound!r}") for comparison in (">=", "!=")]
    assert can_hold(clauses) is (bound < most)


@pytest.mark.parametrize("field", sorted(KINDS))
def test_each_comparison_means_what_its_sign_says(field: str) -> None:
    smaller, bound, larger = {
        "seconds": (1.5, "2.25", 3),
        "share": (0.1, "50%", 0.75),
        "steps": (1, "2", 3),
        "tokens": (1, "2", 3),
        "colour": ("green", "red", "blue"),
        "release": ("0.5.9", "0.5.18", "0.6"),
    }[field]
    same = {"seconds": 2.25, "share": 0.5, "steps": 2, "tokens": 2}.get(field, bound)
    expected = {"==": "010", "!=": "101", ">=": "011", "<=": "110", ">": "001", "<": "100"}
    for comparison in KINDS[field].comparisons:
        clause = LANGUAGE.comparison(f"{field} {comparison} {bound}")
        held = "".join(str(int(clause.holds(fact))) for fact in (smaller, same, larger))
        assert held == expected[comparison], clause
    assert set(KINDS[field].comparisons) == ({"==", "!="} if field == "colour" else set(COMPARISONS))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tokens", "'tokens' is no comparison; write FIELD COMPARISON VALUE, as in 'tokens > 3', with one of =="),
        ("length > 3", "unknown field 'length' in 'length > 3'; allowed: seconds, share, steps"),
        ("colour < red", "colour is compared with == or !=, not with <"),
        ("colour == pink", "'pink' is no colour; allowed: red, green, blue"),
        ("tokens > 1.5", "tokens is compared with a whole number, not with '1.5'"),
        ("release > main", "release is compared with a version such as 0.5.23, not with 'main'"),
        ("seconds > soon", "'seconds > soon' is no comparison"),
        ("seconds > 5%", "seconds is no share, so 'seconds > 5%' has no percentage; write a number"),
        ("steps > 5 %", "steps is no share"),
        ("share > 1e400%", "the bound of 'share > 1e400%' is no finite number"),
        ("tokens > 1 and colour == red or tokens > 2", "'colour == red or tokens > 2' is no comparison"),
        ("tokens > 1 and " * 30, "at most 300 characters, as in 'tokens > 3'; this one has 450"),
    ],
)
def test_what_is_wrong_is_named_with_what_is_allowed(text: str, said: str) -> None:
    with pytest.raises(InvalidCondition) as refused:
        LANGUAGE.condition(text)
    assert said in str(refused.value)


def test_a_percentage_is_the_hundredth_part() -> None:
    assert LANGUAGE.comparison("share >= 80%") == LANGUAGE.comparison("share >= 0.8")
    assert str(LANGUAGE.comparison("share>=80 %")) == "share >= 0.8"


def test_a_single_comparison_is_not_several() -> None:
    with pytest.raises(InvalidCondition, match="is no comparison"):
        LANGUAGE.comparison("tokens > 3 and tokens < 9")


def test_a_condition_holds_for_nothing_of_which_a_field_is_not_known() -> None:
    condition: Condition = LANGUAGE.condition("tokens != 3 and steps >= 0")
    assert condition.holds({"tokens": 4, "steps": 0})
    assert not condition.holds({"tokens": 4})
    assert not condition.holds({"tokens": 3, "steps": 0})
