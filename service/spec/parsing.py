"""From what a spec file or a request's body holds to a spec, or to all that is wrong with it."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from loadgen.scenarios import SCENARIOS
from service.spec.faults import Fault, InvalidSpec, faults_of
from service.spec.spec import LoadSpec, RunSpec


def parse_spec(data: Any) -> RunSpec:
    """A spec from parsed YAML or JSON; None is the empty spec.

    Raises:
        InvalidSpec: with every fault.
    """
    try:
        return RunSpec.model_validate({} if data is None else data)
    except ValidationError as error:
        faults = faults_of(error, RunSpec)
        if not any(fault.field.startswith("load.options") for fault in faults):
            faults += _option_faults(data)
        raise InvalidSpec(faults) from error


def _option_faults(data: Any) -> list[Fault]:
    """What is wrong with the options of a spec that is refused anyhow, so that all is told at once."""
    load = data.get("load") if isinstance(data, dict) else None
    if not isinstance(load, dict):
        return []
    options, name = load.get("options", {}), load.get("scenario", LoadSpec.model_fields["scenario"].default)
    scenario = SCENARIOS.get(name) if isinstance(name, str) else None
    if scenario is None or not isinstance(options, dict):
        return []
    try:
        scenario.Options.model_validate(options)
    except ValidationError as error:
        return faults_of(error, scenario.Options, "load.options")
    return []
