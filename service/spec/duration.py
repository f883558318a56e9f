"""Durations as people write them."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|min|s|m|h|d)")
_LONGEST_TEXT = 100
_ALLOWED = "a number of seconds, or a text such as 90s, 5m or 1h30m"


def parse_duration(value: Any) -> float:
    """Seconds, from a number of seconds or a text such as `90s`, `5m`, `1h30m`.

    Raises:
        ValueError: it is neither.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise ValueError(f"not a duration; allowed: {_ALLOWED}") from None
    if not isinstance(value, str):
        raise ValueError(f"not a duration; allowed: {_ALLOWED}")
    if len(value) > _LONGEST_TEXT:
        raise ValueError(f"longer than {_LONGEST_TEXT} characters; allowed: {_ALLOWED}")
    text = value.strip().lower().replace(" ", "")
    try:
        return float(text)
    except ValueError:
        pass
    if not text or _PART.sub("", text):
        raise ValueError(f"not a duration; allowed: {_ALLOWED}")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


def format_duration(seconds: float) -> str:
    """The shortest such text for whole seconds: `90` gives `1m30s`."""
    left = round(seconds)
    parts = []
    for unit in ("d", "h", "m", "s"):
        count, left = divmod(left, int(_UNITS[unit]))
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string"}], "description": _ALLOWED}),
]
