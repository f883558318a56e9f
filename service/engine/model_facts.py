"""What a model's folder tells that launch and load depend on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.errors import LastpageError

_LARGEST_VOCABULARY = 10_000_000
# SGLang wants prompt and answer together to leave this much of the context free, and cuts answers that do not
# (`managers/scheduler.py`, `init_req_max_new_tokens`, of 0.5.23).
_CONTEXT_KEPT_BACK = 2


class ModelNotUsable(LastpageError):
    """The folder is not that of a model that can be served; the message says why."""


@dataclass(frozen=True)
class ModelFacts:
    """Facts from a model's `config.json` and `generation_config.json`.

    Attributes:
        vocabulary: token ids are below this.
        end_tokens: ids that end an answer early.
        context_length: of the model, tokens; None when the configuration does not say.
    """

    vocabulary: int
    end_tokens: tuple[int, ...]
    context_length: int | None

    @property
    def longest_request(self) -> int | None:
        """Tokens of a prompt and its answer together at most; None when the configuration does not say."""
        return None if self.context_length is None else self.context_length - _CONTEXT_KEPT_BACK


def read_model(folder: Path) -> ModelFacts:
    """Read a model's facts.

    Raises:
        ModelNotUsable: there is no such folder, no config.json in it, no vocabulary size in that, or a token id that
            is not in the vocabulary.
    """
    if not folder.is_dir():
        raise ModelNotUsable(f"{folder} is not a folder")
    config = _read(folder / "config.json", required=True)
    # Models that take pictures keep their language model's configuration in a section.
    section = config.get("text_config")
    text = section if isinstance(section, dict) else config
    vocabulary = text.get("vocab_size", config.get("vocab_size"))
    if not isinstance(vocabulary, int) or vocabulary < 2:
        raise ModelNotUsable(f"{folder / 'config.json'} has no vocab_size")
    if vocabulary > _LARGEST_VOCABULARY:
        raise ModelNotUsable(f"{folder / 'config.json'} has a vocab_size above {_LARGEST_VOCABULARY:,}")
    generation = _read(folder / "generation_config.json", required=False)
    ends = {*_ids(config.get("eos_token_id")), *_ids(text.get("eos_token_id")), *_ids(generation.get("eos_token_id"))}
    for token in ends:
        if not 0 <= token < vocabulary:
            raise ModelNotUsable(
                f"{folder} names the eos_token_id {str(token)[:40]}, which is not in the vocabulary: "
                f"allowed are 0 to {vocabulary - 1}"
            )
    context = text.get("max_position_embeddings")
    return ModelFacts(
        vocabulary=vocabulary,
        end_tokens=tuple(sorted(ends)),
        context_length=context if isinstance(context, int) else None,
    )


def _read(path: Path, *, required: bool) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if required:
            raise ModelNotUsable(f"{path.parent} has no {path.name}") from None
        return {}
    except RecursionError:
        raise ModelNotUsable(f"{path} cannot be read: it is nested too deeply") from None
    except (OSError, ValueError) as error:
        raise ModelNotUsable(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ModelNotUsable(f"{path} does not hold a JSON object")
    return content


def _ids(value: Any) -> list[int]:
    values = value if isinstance(value, list) else [value]
    return [token for token in values if isinstance(token, int)]
