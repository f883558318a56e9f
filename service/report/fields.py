"""Fields of a spec or of a scenario's options, in the words of a spec file: pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import yaml
from pydantic import BaseModel

ABSENT = "absent"
_KINDS = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false"}


class FieldText(NamedTuple):
    """A field, for people.

    Attributes:
        default: as YAML; `absent` where leaving it out is the only way to say it; empty when the field has to be given.
        allowed: values that it may have.
    """

    name: str
    default: str
    allowed: str
    description: str
    inner: tuple[FieldText, ...] = ()


def fields_of(model: type[BaseModel]) -> Iterator[FieldText]:
    """The fields of a model, those of sections with theirs."""
    schema = model.model_json_schema()
    definitions: Mapping[str, Any] = schema.get("$defs", {})
    for name, field in model.model_fields.items():
        schema_part = _resolved(schema["properties"][name], definitions)
        annotation = field.annotation
        inner: tuple[FieldText, ...] = ()
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            inner = tuple(fields_of(annotation))
        default = "" if field.is_required() else as_yaml(_plain(field.get_default(call_default_factory=True)))
        yield FieldText(name, default, _allowed(schema_part, definitions), field.description or "", inner)


def as_yaml(value: Any) -> str:
    """A value in one line, as `--option KEY=VALUE` and a spec file take it; `absent` for None."""
    if value is None:
        return ABSENT
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000)
    return text.removesuffix("\n").removesuffix("\n...")


def _plain(value: Any) -> Any:
    """A default without enumerations, tuples and models, as JSON would have it."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, (tuple, list)):
        return [_plain(entry) for entry in value]
    return getattr(value, "value", value)


def _resolved(schema_part: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = schema_part.get("$ref")
    return definitions[reference.rpartition("/")[2]] if reference else schema_part


def _allowed(schema_part: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    schema_part = _resolved(schema_part, definitions)
    if "enum" in schema_part:
        return " or ".join(map(str, schema_part["enum"]))
    if "const" in schema_part:
        return str(schema_part["const"])
    if "anyOf" in schema_part:
        choices = [_allowed(choice, definitions) for choice in schema_part["anyOf"] if choice.get("type") != "null"]
        return " or ".join(dict.fromkeys(choices))
    kind = schema_part.get("type")
    if kind == "array":
        return f"list of: {_allowed(schema_part.get('items', {}), definitions) or 'anything'}"
    if kind == "object":
        return "mapping"
    return _KINDS.get(str(kind), "anything") + _bounds(schema_part)


def _bounds(schema_part: Mapping[str, Any]) -> str:
    lowest, highest = schema_part.get("minimum"), schema_part.get("maximum")
    above = schema_part.get("exclusiveMinimum")
    if above is not None:
        return f", above {above:,}" + (f" to {highest:,}" if highest is not None else "")
    if lowest is not None and highest is not None:
        return f", {lowest:,} to {highest:,}"
    if lowest is not None:
        return f", at least {lowest:,}"
    longest = schema_part.get("maxLength")
    return f", at most {longest:,} characters" if longest is not None else ""
