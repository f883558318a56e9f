"""Faults of a spec: each names its field, the value it has and what is allowed."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, ValidationError

from service.errors import LastpageError

_LISTS = {
    "thresholds": "[critical_share >= 80%]",
    "args": "[--tp, 2]",
    "waivers": "[{kind: starved, when: prompt_tokens > 3967, reason: never admitted, link: https://...}]",
}


_NULLS = frozenset({"string_type", "int_type", "float_type", "bool_type"})

_LONGEST_SHOWN = 200
_MOST_SHOWN = 10
_DEEPEST_SHOWN = 3
_LONG_NUMBER = re.compile(r"[0-9]{40,}(?:\.\.\.)?")


def _shown(value: Any) -> JsonValue:
    """A value as JSON can carry it, cut short: what was given may be huge, or hold itself, or be beyond JSON."""
    shown = _json_value(value, _DEEPEST_SHOWN)
    if isinstance(shown, str) or len(text := json.dumps(shown, ensure_ascii=False)) <= _LONGEST_SHOWN:
        return shown
    return _cut(text)


def _json_value(value: Any, depth: int) -> JsonValue:
    if isinstance(value, str):
        return _text(_cut(value))
    if isinstance(value, int) and value.bit_length() > _LONGEST_SHOWN:
        return f"a number of {value.bit_length()} bits"
    if value is None or isinstance(value, (int, bool)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, (dict, list, tuple)) and not depth:
        return "…"
    if isinstance(value, dict):
        items = itertools.islice(value.items(), _MOST_SHOWN)
        shown = {_text(_cut(str(key))): _json_value(inner, depth - 1) for key, inner in items}
        return shown if len(value) <= _MOST_SHOWN else {**shown, "…": "…"}
    if isinstance(value, (list, tuple)):
        entries = [_json_value(inner, depth - 1) for inner in value[:_MOST_SHOWN]]
        return entries if len(value) <= _MOST_SHOWN else [*entries, "…"]
    return _text(_cut(repr(value)))


def _text(text: str) -> str:
    """Without lone surrogates, which JSON can escape and UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"


def _told(message: Any) -> Any:
    """A message that can be sent and read, whatever of the spec it repeats."""
    if not isinstance(message, str):
        return message
    return _text(_LONG_NUMBER.sub(lambda number: f"{number[0][:12]}…", message))


class Fault(BaseModel):
    """One thing in a spec that cannot work."""

    model_config = ConfigDict(frozen=True)

    field: Annotated[str, BeforeValidator(_text)] = Field(
        description="Dotted name, as in `engine.page_size`; empty for the spec as a whole."
    )
    value: Annotated[JsonValue, BeforeValidator(_shown)] = Field(
        default=None, description="What was given, cut short where it is long."
    )
    message: Annotated[str, BeforeValidator(_told)] = Field(description="What is wrong with it, and what is allowed.")

    def __str__(self) -> str:
        given = "" if self.value is None else f" = {self.value!r}"
        return f"{self.field or 'spec'}{given}: {self.message}"


class InvalidSpec(LastpageError):
    """A spec that cannot work, with every fault that was found."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("; ".join(map(str, faults)))
        self.faults = tuple(faults)


def faults_of(error: ValidationError, model: type[BaseModel], prefix: str = "") -> list[Fault]:
    """The faults in a failed validation of `model`; `prefix` is put before each field, as in `load.options`."""
    return [fault_of(detail["loc"], detail, model, prefix) for detail in error.errors(include_url=False)]


def fault_of(
    location: Sequence[int | str], detail: Mapping[str, Any], model: type[BaseModel], prefix: str = ""
) -> Fault:
    """The fault that pydantic tells in one of its `errors()`, at a location in `model`."""
    message = _message(location, detail)
    if detail["type"] == "extra_forbidden":
        known = _fields_beside(model, location)
        message = f"unknown field; allowed: {', '.join(known)}" if known else "unknown field; none is allowed here"
    path = ".".join(map(str, (*([prefix] if prefix else []), *location)))
    # Of what is missing pydantic gives the mapping in which it is.
    value = None if detail["type"] == "missing" else detail.get("input")
    return Fault(field=_cut(path), value=value, message=message)


def _message(location: Sequence[int | str], detail: Mapping[str, Any]) -> str:
    """What pydantic says, in the words of a spec file rather than of Python."""
    kind, value = detail["type"], detail.get("input")
    if kind in ("list_type", "tuple_type"):
        return f"not a list; write one, as in {_list_like(value, str(location[-1]) if location else '')}"
    if kind == "missing":
        return "it is missing; it has to be given"
    if value is None and kind in _NULLS:
        return "null is no value; leave the key out to have its default"
    if kind in ("dict_type", "model_type", "model_attributes_type"):
        return "not a mapping; write keys with values, as in {key: value}"
    if kind == "string_type":
        return "not a text; put it in quotes" if isinstance(value, (int, float)) else "not a text"
    return str(detail["msg"]).removeprefix("Value error, ").replace("Input should be ", "must be ")


def _list_like(value: Any, field: str) -> str:
    """What somebody may have meant: `1,2` is `[1,2]`."""
    if field in _LISTS:
        return _LISTS[field]
    is_plain = isinstance(value, (int, float)) or (isinstance(value, str) and value.strip("[]{} "))
    return f"[{_cut(str(value))}]" if is_plain and not isinstance(value, bool) else "[first, second]"


def _fields_beside(model: type[BaseModel], location: Sequence[int | str]) -> list[str]:
    """Names of the fields that may stand where `location` points to."""
    for part in location[:-1]:
        if isinstance(part, int):
            continue  # an entry of a list, whose model is that of the list
        annotation = model.model_fields[str(part)].annotation if str(part) in model.model_fields else None
        inner = next((kind for kind in (annotation, *get_args(annotation)) if _is_model(kind)), None)
        if inner is None:
            return []
        model = inner
    return list(model.model_fields)


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
