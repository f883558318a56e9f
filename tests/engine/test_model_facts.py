"""Claims about what is read of a model: the facts that load depends on, or a reason why it cannot be served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from service.engine.model_facts import ModelFacts, ModelNotUsable, read_model
from service.engine.tiny_model import write_tiny_model
from service.plugin.settings import Profile


def model(folder: Path, config: Any, generation: Any = None) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    return folder


@pytest.mark.parametrize("profile", Profile)
def test_the_projects_own_model_never_ends_an_answer_early(tmp_path: Path, profile: Profile) -> None:
    facts = read_model(write_tiny_model(tmp_path, profile))
    assert facts.end_tokens == ()
    assert facts.vocabulary >= 256 and facts.context_length is not None


@pytest.mark.parametrize(
    ("config", "generation", "ends"),
    [
        ({"eos_token_id": 2}, None, (2,)),
        ({"eos_token_id": [2, 9]}, None, (2, 9)),
        ({"eos_token_id": None}, {"eos_token_id": 7}, (7,)),
        ({"eos_token_id": 2}, {"eos_token_id": [7, 2]}, (2, 7)),
        ({"text_config": {"vocab_size": 512, "eos_token_id": 5}, "eos_token_id": 2}, None, (2, 5)),
        ({"eos_token_id": "</s>"}, {}, ()),
    ],
)
def test_ids_that_end_an_answer_are_all_that_any_file_names(
    tmp_path: Path, config: dict[str, Any], generation: Any, ends: tuple[int, ...]
) -> None:
    assert read_model(model(tmp_path, {"vocab_size": 512, **config}, generation)).end_tokens == ends


def test_the_language_models_section_counts(tmp_path: Path) -> None:
    section = {"vocab_size": 1000, "max_position_embeddings": 4096}
    config = {"vocab_size": 9, "max_position_embeddings": 8, "text_config": section}
    assert read_model(model(tmp_path, config)) == ModelFacts(1000, (), 4096)


def test_a_context_length_that_is_not_told_is_unknown(tmp_path: Path) -> None:
    assert read_model(model(tmp_path, {"vocab_size": 512})).context_length is None


@pytest.mark.parametrize("vocabulary", [None, "512", 1, 0, -5, 3.5])
def test_a_vocabulary_that_makes_no_prompts_is_refused(tmp_path: Path, vocabulary: Any) -> None:
    with pytest.raises(ModelNotUsable, match=r"config\.json has no vocab_size"):
        read_model(model(tmp_path, {"vocab_size": vocabulary}))


def test_a_vocabulary_that_no_model_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelNotUsable, match="above 10,000,000"):
        read_model(model(tmp_path, {"vocab_size": 10**30}))


@pytest.mark.parametrize("token", [512, -1, 10**30])
def test_an_end_token_outside_the_vocabulary_is_named(tmp_path: Path, token: int) -> None:
    """SGLang would fail at each request that is to leave it out."""
    with pytest.raises(ModelNotUsable, match=f"eos_token_id {token}.*allowed are 0 to 511"):
        read_model(model(tmp_path, {"vocab_size": 512}, {"eos_token_id": [511, token]}))


def test_what_is_no_model_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotUsable, match="nowhere is not a folder"):
        read_model(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(ModelNotUsable, match="file is not a folder"):
        read_model(tmp_path / "file")
    with pytest.raises(ModelNotUsable, match=r"has no config\.json"):
        read_model(tmp_path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
        (b"[]", "does not hold a JSON object"),
        (b"[" * 100_000, "cannot be read: it is nested too deeply"),
    ],
)
@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_a_file_that_cannot_be_understood_is_named(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    model(tmp_path, {"vocab_size": 512})
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelNotUsable, match=f"{name} {reason}"):
        read_model(tmp_path)
