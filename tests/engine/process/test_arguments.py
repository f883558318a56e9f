from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.process.arguments import OWNED, OWNED_WITH_TINY_MODEL, layered, refused_arguments, split_options


@pytest.mark.parametrize("name", sorted(OWNED))
def test_every_owned_option_is_refused_in_both_forms(name: str) -> None:
    for words in ([name, "1"], [f"{name}=1"]):
        [message] = refused_arguments(words, tiny_model=False)
        assert message == f"{name} is set by lastpage: {OWNED[name]}"


@pytest.mark.parametrize("name", sorted(OWNED_WITH_TINY_MODEL))
def test_options_of_the_tiny_model_are_refused_with_it_only(name: str) -> None:
    assert refused_arguments([name], tiny_model=False) == []
    assert len(refused_arguments([name], tiny_model=True)) == 1


@pytest.mark.parametrize(
    ("word", "owned"),
    [
        ("--po", "--port"),
        ("--page-si=64", "--page-size"),
        ("--max-total-tok", "--max-total-tokens"),
        ("--served", "--served-model-name"),
        ("--dp", "--dp-size"),
        ("--page_size", "--page-size"),
        ("-h", "--help"),
    ],
)
def test_abbreviated_option_is_refused_under_its_full_name(word: str, owned: str) -> None:
    [message] = refused_arguments([word, "1"], tiny_model=False)
    assert f"{owned})" in message or message.startswith(owned)


@pytest.mark.parametrize(
    "words",
    [
        ["--tp-size", "2"],
        ["--tp", "2"],
        ["--disable-overlap-schedule"],
        ["--chunked-prefill-size", "-1"],
        ["--json-model-override-args", '{"port": 1}'],
        ["--schedule-conservativeness=0"],
        ["--enable-metrics-for-all-schedulers"],
        ["--model-impl", "auto"],
    ],
)
def test_other_options_are_let_through(words: list[str]) -> None:
    assert refused_arguments(words, tiny_model=True) == []


def test_word_before_any_option_is_refused() -> None:
    assert refused_arguments(["model", "--tp-size", "2"], tiny_model=True) == [
        "'model' belongs to no option; write --option value or --option=value"
    ]


def test_later_layer_replaces_the_option_in_either_form_with_all_its_values() -> None:
    first = ["--log-level-http", "warning", "--gc-threshold", "1", "2", "--disable-radix-cache"]
    assert layered(first, ["--gc-threshold=5", "--log-level", "debug"]) == [
        *("--log-level-http", "warning"),
        "--disable-radix-cache",
        "--gc-threshold=5",
        *("--log-level", "debug"),
    ]


WORDS = st.lists(st.sampled_from(["--a", "--a=1", "--b", "--b-c", "1", "-1", "x"]), max_size=8)


@given(WORDS)
def test_splitting_loses_no_word(words: list[str]) -> None:
    options, stray = split_options(words)
    assert stray + [word for option in options for word in option.words] == words


@given(WORDS, WORDS)
def test_layers_end_with_the_last_layer_whole(first: list[str], second: list[str]) -> None:
    last = layered(second)
    result = layered(first, second)
    assert result[len(result) - len(last) :] == last
    names = {option.name for option in split_options(last)[0]}
    kept = result[: len(result) - len(last)]
    assert names.isdisjoint(option.name for option in split_options(kept)[0])
