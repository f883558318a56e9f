"""Claims about the list of scenarios: a scenario is one file to add, and nothing else names it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import loadgen.scenarios
from loadgen.scenarios import SCENARIOS
from loadgen.scenarios.ballast import Ballast
from loadgen.scenarios.burst import Burst
from loadgen.scenarios.mixed import Mixed
from loadgen.scenarios.registry import in_order
from loadgen.scenarios.tight.scenario import Tight

FOLDER = Path(loadgen.scenarios.__file__).parent

TRICKLE = '''
"""`trickle`: one request at a time. It leans on nothing."""

from __future__ import annotations

from pydantic import Field

from ..requests.wave import Wave
from ..sglang.pages import Pool
from ..sglang.shape import Shape
from .base import NoOptions, Observation, Scenario, Streamed


class TrickleOptions(NoOptions):
    """Options of `trickle`."""

    drops: int = Field(default=7, ge=1, description="Tokens of an answer.")


class Trickle(Scenario[TrickleOptions]):
    name = "trickle"
    summary = "One request at a time"
    targets_cells = True
    streamed = Streamed.ALL
    Options = TrickleOptions

    @classmethod
    def longest_request(cls, pool: Pool, options: TrickleOptions) -> int:
        return 5 + options.drops

    def next_wave(self, seen: Observation) -> Wave:
        return Wave() if seen.open_requests else Wave.of([Shape(5, self.options.drops)], streamed=True)
'''

SHOWN = """
import sys
import loadgen.scenarios
loadgen.scenarios.__path__.append(sys.argv[1])

from typer.testing import CliRunner
from loadgen.scenarios import SCENARIOS
from loadgen.sglang.pages import Pool
from loadgen.sglang.server import ServerConfiguration
from loadgen.scenarios import Observation
from service.api.scenarios import list_scenarios
from service.cli.main import app
from service.report.hints import hints_before
from service.report.spec_page import page
from service.spec.parsing import parse_spec
from service.spec.waivers import parse_condition
import asyncio

assert list(SCENARIOS)[:4] == ["tight", "mixed", "prefix", "trickle"], list(SCENARIOS)
spec = parse_spec({"load": {"scenario": "trickle", "until_coverage": 0.5, "options": {"drops": 3}}})
assert list(hints_before(spec)) == []
(hint,) = hints_before(parse_spec({"load": {"scenario": "steady", "until_coverage": 0.5}}))
assert "mixed and prefix and trickle do" in hint, hint
kind = SCENARIOS["trickle"]
load = kind(ServerConfiguration(Pool(128, 32)), kind.Options.model_validate(spec.load.options), 1)
assert load.next_wave(Observation(0.0, (), 0)).requests[0].shape.max_new_tokens == 3
assert parse_condition("scenario == trickle").holds({"scenario": "trickle"})
assert "trickle" in {view.name for view in asyncio.run(list_scenarios()).scenarios}
text = page()
assert "### trickle\\n\\nOne request at a time. It aims at cells" in text and "| `drops` | `7` |" in text
assert "all of `replay` and `steady` and `trickle`" in text
listed = CliRunner().invoke(app, ["scenarios"]).output
assert "trickle (aims at cells)  One request at a time" in listed and "drops (default 7)" in listed, listed
assert "It leans on nothing." in CliRunner().invoke(app, ["scenarios", "trickle"]).output
waves = {"waves": [{"requests": "5+7"}], "made_by": "trickle", "made_with": {"drops": 4}}
assert SCENARIOS["waves"].Options.model_validate(waves).maker()[0] is kind
"""


def test_a_scenario_is_one_file_to_add_and_is_then_in_spec_listing_docs_and_hints(tmp_path: Path) -> None:
    (tmp_path / "trickle.py").write_text(TRICKLE)
    shown = subprocess.run([sys.executable, "-c", SHOWN, str(tmp_path)], capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr


def test_every_module_with_a_scenario_is_in_the_list_under_the_name_that_it_has() -> None:
    files = {path.stem for path in FOLDER.glob("*.py")} | {path.parent.name for path in FOLDER.glob("*/scenario.py")}
    assert files - {"__init__", "base", "registry"} == set(SCENARIOS)
    assert all(scenario.name == name for name, scenario in SCENARIOS.items())


def test_the_default_one_is_first_then_those_that_aim_at_cells_and_all_else_by_name() -> None:
    assert list(in_order([Burst, Mixed, Ballast, Tight])) == ["tight", "mixed", "ballast", "burst"]
    assert SCENARIOS.default is Tight


def test_a_name_that_two_have_is_refused() -> None:
    with pytest.raises(ValueError, match="more than one scenario has the name burst"):
        in_order([Tight, Burst, type("Other", (Burst,), {})])


def test_there_is_one_default_and_no_more() -> None:
    with pytest.raises(ValueError, match="not none"):
        in_order([Burst, Mixed])
    with pytest.raises(ValueError, match="not other, tight"):
        in_order([Tight, type("Other", (Burst,), {"name": "other", "is_default": True})])


def test_what_a_scenario_is_built_on_does_not_make_it_the_default_too() -> None:
    assert issubclass(Ballast, Tight) and not Ballast.is_default
    assert Ballast.expected_critical_share is None
