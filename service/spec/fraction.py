"""Shares as people write them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

_LONGEST_TEXT = 100
_ALLOWED = "a number above 0 and up to 1, or a percentage such as 90%"


def parse_fraction(value: Any) -> float:
    """A share above 0 and up to 1, from such a number or a text such as `0.9` or `90%`.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, str) and len(value) <= _LONGEST_TEXT:
        number, percent = value.strip().removesuffix("%"), value.strip().endswith("%")
        try:
            value = float(number) / (100 if percent else 1)
        except ValueError:
            raise ValueError(f"not a share; allowed: {_ALLOWED}") from None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
        raise ValueError(f"not a share; allowed: {_ALLOWED}")
    return float(value)


Fraction = Annotated[
    float,
    BeforeValidator(parse_fraction),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string"}], "description": _ALLOWED}),
]
