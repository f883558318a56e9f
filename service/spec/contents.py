"""What a spec may be made of, whether it comes as YAML or as JSON (pure)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError

MOST_VALUES = 10_000
DEEPEST = 20
_MOST_BITS = 256

InvalidValue = tuple[tuple[int | str, ...], Any, str]
"""What is wrong: where, the value, and what is said of it."""


def check_size(data: Any) -> None:
    """Whether it is no more than any spec holds. With anchors a short text can hold very much, itself included.

    Raises:
        ValueError: it holds too many values, or is nested too deeply.
    """
    values, level = 0, [data]
    for _ in range(DEEPEST):
        values += sum(len(_inside(value)) for value in level)
        if values > MOST_VALUES:
            raise ValueError(f"it holds more than {MOST_VALUES:,} values")
        level = [inner for value in level for _, inner in _inside(value)]
        if not level:
            return
    raise ValueError(f"it is nested too deeply; allowed: {DEEPEST} levels")


def check_text(data: Any) -> None:
    """Whether all text in it can be written to a file; it is of a size that was checked.

    Raises:
        ValidationError: with the place of each text that cannot.
    """
    _refuse(_bad_text(data, ()))


def check_json(data: Any) -> None:
    """Whether it is made of what JSON has; it is of a size that was checked.

    Raises:
        ValidationError: with the place of each value that is not.
    """
    _refuse(_not_json(data, ()))


def _bad_text(data: Any, place: tuple[int | str, ...]) -> Iterator[InvalidValue]:
    message = "a half of a surrogate pair cannot be written as UTF-8; allowed: Unicode text"
    if isinstance(data, str) and not _encodes(data):
        yield place, data, message
    for key, inner in _inside(data):
        if isinstance(key, str) and not _encodes(key):
            yield (*place, _name(key)), key, message
        else:
            yield from _bad_text(inner, (*place, _name(key)))


def _not_json(data: Any, place: tuple[int | str, ...]) -> Iterator[InvalidValue]:
    if isinstance(data, (dict, list, tuple)):
        for key, inner in _inside(data):
            if isinstance(data, dict) and not isinstance(key, str):
                yield (*place, _name(key)), key, "a key that is not a text; put it in quotes"
            else:
                yield from _not_json(inner, (*place, _name(key)))
    elif isinstance(data, float) and not math.isfinite(data):
        yield place, data, "must be a finite number"
    elif isinstance(data, int) and data.bit_length() > _MOST_BITS:
        yield place, data, f"too large a number; allowed: up to {_MOST_BITS} bits"
    elif data is not None and not isinstance(data, (str, bool, int, float)):
        kind = type(data).__name__
        yield place, data, f"a {kind}, which JSON does not have; put it in quotes if it is meant as a text"


def _refuse(found: Iterable[InvalidValue]) -> None:
    errors = [
        InitErrorDetails(
            type=PydanticCustomError("not_in_a_spec", "{message}", {"message": message}), loc=place, input=value
        )
        for place, value, message in found
    ]
    if errors:
        raise ValidationError.from_exception_data("spec", errors)


def _inside(value: Any) -> list[tuple[Any, Any]]:
    """Key and value of each entry."""
    if isinstance(value, dict):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, (list, tuple)) else []


def _name(key: Any) -> int | str:
    return key if isinstance(key, int) else str(key).encode("utf-8", "replace").decode()


def _encodes(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
