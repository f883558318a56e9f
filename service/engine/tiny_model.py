"""The project's own model: a folder that SGLang loads, written here, so that nothing is downloaded.

The page pool does not depend on what a model computes. One layer of a LLaMA is enough, and it is fast enough that
the scheduler, and with it the allocator, is what sets the pace. It has no end-of-sequence token: a request ends at its
`max_new_tokens` and nowhere else, which is what exact page arithmetic rests on.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from service.engine.tiny_weights import VERSION, tiny_weights
from service.plugin.settings import Profile

VOCABULARY = 256
CONTEXT_LENGTH = 32_768
_HEADS = 2
# On Ascend the attention kernels are made for the head size of common models; a plain CPU takes any.
_HEAD_SIZE = {Profile.REHEARSAL: 32, Profile.ASCEND: 128, Profile.SIMULATED: 32}
# In float32 what a row computes hardly depends on the rows beside it. On the NPU bfloat16 is what kernels are made for.
_PRECISION = {Profile.REHEARSAL: "float32", Profile.ASCEND: "bfloat16", Profile.SIMULATED: "float32"}
# A simulated engine computes nothing, so any pool can be filled by any request.
_SIMULATED_CONTEXT_LENGTH = 2**31


def write_tiny_model(models: Path, profile: Profile) -> Path:
    """Write the model's folder below `models`, unless it is there.

    Safe when several do it at once: the folder's name is a digest of what makes its contents.

    Returns:
        the model's folder.
    """
    config = _config(profile)
    files = {
        "config.json": config,
        "tokenizer.json": _tokenizer(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": _context_length(profile),
        },
    }
    texts = {name: json.dumps(content, indent=2, ensure_ascii=False) + "\n" for name, content in files.items()}
    digest = hashlib.sha256(json.dumps([VERSION, texts], sort_keys=True).encode()).hexdigest()[:16]
    folder = models / f"tiny-{digest}"
    if folder.is_dir():
        return folder
    models.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=models))
    draft.chmod(0o755)
    for name, text in texts.items():
        (draft / name).write_text(text, encoding="utf-8")
    (draft / "model.safetensors").write_bytes(tiny_weights(config))
    try:
        draft.rename(folder)
    except OSError:
        # Another one was first.
        shutil.rmtree(draft)
        if not folder.is_dir():
            raise
    return folder


def _config(profile: Profile) -> dict[str, Any]:
    head_size = _HEAD_SIZE[profile]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": _HEADS * head_size,
        "intermediate_size": 2 * _HEADS * head_size,
        "num_hidden_layers": 1,
        "num_attention_heads": _HEADS,
        "num_key_value_heads": _HEADS,
        "head_dim": head_size,
        "hidden_act": "silu",
        "vocab_size": VOCABULARY,
        "max_position_embeddings": _context_length(profile),
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
        "tie_word_embeddings": False,
        "torch_dtype": _PRECISION[profile],
        "bos_token_id": None,
        "eos_token_id": None,
    }


def _context_length(profile: Profile) -> int:
    return _SIMULATED_CONTEXT_LENGTH if profile is Profile.SIMULATED else CONTEXT_LENGTH


def _tokenizer() -> dict[str, Any]:
    """A byte-level tokenizer: one token for each byte, nothing merged, no special tokens."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": {character: byte for byte, character in enumerate(_byte_characters())},
            "merges": [],
        },
    }


def _byte_characters() -> list[str]:
    """For each byte the printable character that stands for it in byte-level tokenizers (GPT-2's convention)."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(VOCABULARY)]
