"""Claims about the reference of the spec, and about how its fields are told."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from loadgen.scenarios import SCENARIOS
from service.report.fields import ABSENT, fields_of
from service.report.spec_page import EXAMPLE, page
from service.spec.parsing import parse_spec
from service.spec.spec import EngineSpec, LoadSpec, RunSpec
from service.spec.waivers import Waiver
from service.spec.yaml_text import read_yaml

FILE = Path(__file__).parents[2] / "docs" / "spec.md"


def test_the_page_in_docs_is_what_the_models_say() -> None:
    assert FILE.read_text() == page(), "`make spec` writes it anew"


def test_the_example_can_be_run_and_has_every_key_but_those_of_one_machine() -> None:
    data = yaml.safe_load(EXAMPLE)
    parse_spec(data)
    assert data.keys() == RunSpec.model_fields.keys()
    assert data["engine"].keys() | {"model", "port"} == EngineSpec.model_fields.keys()
    assert data["load"].keys() == LoadSpec.model_fields.keys()
    assert data["waivers"][0].keys() == Waiver.model_fields.keys()
    scenario = SCENARIOS[data["load"]["scenario"]]
    scenario.Options.model_validate(data["load"]["options"])


@pytest.mark.parametrize("name", SCENARIOS)
def test_defaults_are_told_as_an_option_takes_them(name: str) -> None:
    options = SCENARIOS[name].Options
    required = {"waves": [{"requests": "1+2"}]} if name == "waves" else {}
    for field in fields_of(options):
        if field.default not in ("", ABSENT):
            given = options.model_validate({**required, field.name: read_yaml(field.default)})
            assert given == options.model_validate(required), field


def test_every_field_is_described() -> None:
    for model in (EngineSpec, LoadSpec, Waiver, *(scenario.Options for scenario in SCENARIOS.values())):
        for field in fields_of(model):
            assert field.description and field.allowed, (model, field.name)
            assert all(inner.description for inner in field.inner)
