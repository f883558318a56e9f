"""Weights of the tiny model, as a safetensors file, written with the standard library alone.

SGLang's dummy weights (`--load-format dummy`) are so small that attention adds nothing to a number: each token is then
a function of the token before it, whatever stands in the KV cache, and a wrong page is never seen in an answer. With
these every answer depends on the whole prompt.
"""

from __future__ import annotations

import array
import json
import math
import random
import struct
from collections.abc import Iterator, Mapping
from typing import Any

VERSION = 2
"""Grows when other weights are written for the same configuration."""

# Attention with such scores looks at many tokens, at each step at others, and what it adds outweighs the last token's
# own embedding: of requests with a single wrong entry in the KV cache, among a hundred, half show it within 8 tokens.
_SCORE_GAIN = 1.0
_ATTENTION_GAIN = 12.0


def tiny_weights(config: Mapping[str, Any]) -> bytes:
    """The contents of `model.safetensors` for the configuration of a one-layer LLaMA; the same at each call.

    Args:
        config: a `config.json` with `hidden_size`, `intermediate_size`, `vocab_size` and `torch_dtype`, which is
            float32 or bfloat16.
    """
    kind, encode = _ENCODINGS[config["torch_dtype"]]
    header: dict[str, Any] = {}
    data = bytearray()
    for name, shape, values in _tensors(config["hidden_size"], config["intermediate_size"], config["vocab_size"]):
        content = encode(values)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(data)


def _tensors(hidden: int, intermediate: int, vocabulary: int) -> Iterator[tuple[str, list[int], list[float]]]:
    layer = "model.layers.0."
    for name in (f"{layer}input_layernorm", f"{layer}post_attention_layernorm", "model.norm"):
        yield f"{name}.weight", [hidden], [1.0] * hidden
    matrices = {
        "model.embed_tokens": (vocabulary, hidden, 1.0),
        "lm_head": (vocabulary, hidden, 1.0),
        f"{layer}self_attn.q_proj": (hidden, hidden, _SCORE_GAIN / math.sqrt(hidden)),
        f"{layer}self_attn.k_proj": (hidden, hidden, _SCORE_GAIN / math.sqrt(hidden)),
        f"{layer}self_attn.v_proj": (hidden, hidden, 1 / math.sqrt(hidden)),
        f"{layer}self_attn.o_proj": (hidden, hidden, _ATTENTION_GAIN / math.sqrt(hidden)),
        f"{layer}mlp.gate_proj": (intermediate, hidden, 1 / math.sqrt(hidden)),
        f"{layer}mlp.up_proj": (intermediate, hidden, 1 / math.sqrt(hidden)),
        f"{layer}mlp.down_proj": (hidden, intermediate, 1 / math.sqrt(intermediate)),
    }
    for name, (rows, columns, deviation) in matrices.items():
        drawn = random.Random(name)
        yield f"{name}.weight", [rows, columns], [drawn.gauss(0.0, deviation) for _ in range(rows * columns)]


def _float32(values: list[float]) -> bytes:
    floats = array.array("f", values)
    if struct.pack("=H", 1) != struct.pack("<H", 1):
        floats.byteswap()
    return floats.tobytes()


def _bfloat16(values: list[float]) -> bytes:
    """The upper halves of the float32 values, which is what bfloat16 is."""
    content = _float32(values)
    halves = bytearray(len(content) // 2)
    halves[0::2], halves[1::2] = content[2::4], content[3::4]
    return bytes(halves)


_ENCODINGS = {"float32": ("F32", _float32), "bfloat16": ("BF16", _bfloat16)}
