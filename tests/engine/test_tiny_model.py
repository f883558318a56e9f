from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from service.engine.tiny_model import write_tiny_model
from service.plugin.settings import Profile


@pytest.mark.parametrize("profile", list(Profile))
def test_model_never_ends_a_request_by_itself(tmp_path: Path, profile: Profile) -> None:
    config = json.loads((write_tiny_model(tmp_path, profile) / "config.json").read_text())
    assert config["eos_token_id"] is None
    assert config["hidden_size"] == config["num_attention_heads"] * config["head_dim"]


def test_tokenizer_has_one_token_for_each_byte(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path, Profile.REHEARSAL)
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    assert sorted(vocabulary.values()) == list(range(256))
    assert vocabulary["A"] == ord("A") and vocabulary["Ġ"] == ord(" ")


def test_profiles_have_models_of_their_own(tmp_path: Path) -> None:
    assert write_tiny_model(tmp_path, Profile.REHEARSAL) != write_tiny_model(tmp_path, Profile.ASCEND)


def test_second_writing_is_the_same_folder_and_leaves_it_alone(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path, Profile.REHEARSAL)
    before = (folder / "config.json").stat().st_mtime_ns
    assert write_tiny_model(tmp_path, Profile.REHEARSAL) == folder
    assert (folder / "config.json").stat().st_mtime_ns == before


def test_writing_at_once_leaves_one_whole_folder(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        folders = set(pool.map(lambda _: write_tiny_model(tmp_path / "models", Profile.REHEARSAL), range(16)))
    assert [tmp_path / "models" / name.name for name in folders] == list((tmp_path / "models").iterdir())
