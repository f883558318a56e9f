"""Claims about the tiny model's weights: a file of the safetensors form, and the very same one each time."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from service.engine.tiny_weights import tiny_weights

CONFIG = {"hidden_size": 8, "intermediate_size": 16, "vocab_size": 12}


def parts(content: bytes) -> tuple[dict[str, Any], bytes]:
    (length,) = struct.unpack_from("<Q", content)
    return json.loads(content[8 : 8 + length]), content[8 + length :]


@pytest.mark.parametrize(("precision", "size"), [("float32", 4), ("bfloat16", 2)])
def test_tensors_lie_one_behind_the_other_and_fill_the_file(precision: str, size: int) -> None:
    header, data = parts(tiny_weights({**CONFIG, "torch_dtype": precision}))
    end = 0
    for tensor in header.values():
        begin, next_end = tensor["data_offsets"]
        numbers = 1
        for extent in tensor["shape"]:
            numbers *= extent
        assert (begin, next_end - begin) == (end, numbers * size)
        end = next_end
    assert end == len(data)
    assert header["model.layers.0.mlp.down_proj.weight"]["shape"] == [8, 16]


def test_weights_are_the_same_each_time_and_those_of_a_half_the_precision_nearly_so() -> None:
    exact = tiny_weights({**CONFIG, "torch_dtype": "float32"})
    assert tiny_weights({**CONFIG, "torch_dtype": "float32"}) == exact
    _, whole = parts(exact)
    _, half = parts(tiny_weights({**CONFIG, "torch_dtype": "bfloat16"}))
    for place in range(0, len(whole) // 4, 7):
        (number,) = struct.unpack_from("<f", whole, 4 * place)
        (near,) = struct.unpack("<f", b"\0\0" + half[2 * place : 2 * place + 2])
        assert near == pytest.approx(number, rel=2**-7)
