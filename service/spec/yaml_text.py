"""Spec files: YAML, of which JSON is a part, in and out."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from service.files import read_text
from service.spec.contents import check_size
from service.spec.faults import Fault, InvalidSpec
from service.spec.spec import RunSpec

# libyaml, where PyYAML was built with it, is ten times as fast. It is not for texts of others: one that is nested
# deeply overruns its stack.
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_OwnLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_yaml(path: Path, *, pipes: bool = False) -> Any:
    """The contents of a YAML (or JSON) spec file.

    Args:
        pipes: whether it may come out of one, as in `-f <(...)`.

    Raises:
        InvalidSpec: it cannot be read, is not YAML, has a key twice, or holds more than any spec.
    """
    try:
        return read_yaml(read_text(path, pipes=pipes))
    except FileNotFoundError as error:
        raise InvalidSpec([Fault(field="file", value=str(path), message="there is no such file")]) from error
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}"
        raise InvalidSpec([Fault(field="file", value=str(path), message=message)]) from error
    except ValueError as error:
        raise InvalidSpec([Fault(field="file", value=str(path), message=f"not YAML: {error}")]) from error


def read_yaml(text: str) -> Any:
    """What a YAML text holds.

    Raises:
        ValueError: it is not YAML, has a key twice, or holds more than any spec.
    """
    try:
        data = yaml.load(text, Loader=_SpecLoader)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except Exception as error:
        # PyYAML lets through whatever its constructors meet: dates that do not exist, numbers without digits, ...
        raise ValueError(str(error) or type(error).__name__) from error
    check_size(data)
    return data


def dump_yaml(spec: RunSpec) -> str:
    """A spec file's text, from which `load_yaml` and `parse_spec` make the same spec again."""
    values = spec.model_dump(mode="json", exclude_none=True)
    readable = yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    # PyYAML leaves some characters unescaped that YAML takes for line breaks.
    if yaml.load(readable, Loader=_OwnLoader) == values:
        return readable
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False)


class _SpecLoader(yaml.SafeLoader):
    """Where PyYAML takes the last of two equal keys in silence, and `90:00` for a number to the base of 60."""

    def construct_number(self, node: yaml.ScalarNode) -> Any:
        if ":" in node.value:
            return node.value
        is_integer = node.tag == "tag:yaml.org,2002:int"
        return self.construct_yaml_int(node) if is_integer else self.construct_yaml_float(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                raise yaml.constructor.ConstructorError(
                    "while reading a mapping", node.start_mark, f"found the key {key!r} twice", key_node.start_mark
                )
            if isinstance(key, Hashable):
                seen.add(key)
        return super().construct_mapping(node, deep)


_SpecLoader.add_constructor("tag:yaml.org,2002:int", _SpecLoader.construct_number)
_SpecLoader.add_constructor("tag:yaml.org,2002:float", _SpecLoader.construct_number)
