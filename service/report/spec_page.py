"""`docs/spec.md`, from the models themselves: `python -m service.report.spec_page > docs/spec.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from loadgen.scenarios import SCENARIOS, Scenario, Streamed
from service.measures import BOUNDED, MEASURES
from service.report.fields import FieldText, fields_of
from service.spec.spec import EngineSpec, LoadSpec, RunSpec
from service.spec.waivers import Waiver

EXAMPLE = """\
name: nightly
labels: {branch: main}
engine:
  name: 0.5.23
  allocator: installed
  page_size: 128
  pool_pages: 32
  args: [--disable-overlap-schedule]
  hang_seconds: 30
load:
  scenario: mixed
  duration: 30m
  until_coverage: 90%
  seed: 7
  options: {weights: {staggered: 5}}
  witness_share: 0.2
  starve_seconds: 12
thresholds: [critical_steps >= 5000, requests.truncated == 0]
waivers:
- kind: starved
  when: prompt_tokens > 3967 and pool_pages == 32 and page_size == 128 and release <= 0.5.23
  reason: longer than what the scheduler ever admits, and not refused
  link: https://github.com/sgl-project/sglang/pull/29249
"""

_INTRODUCTION = """\
# The spec of a run

A spec is a YAML file for `lastpage soak -f`, or the JSON body of `POST /v1/runs`. Every key has a default, `{}` is the
default soak, an unknown key is refused. Flags of `lastpage soak` override the file. This page is made by `make spec`
from the models that read a spec. *Absent* is a key that is left out, or null.

All of it at once:
"""

_THRESHOLDS = """\
## What a threshold may name

A threshold is `MEASURE COMPARISON NUMBER`, with one of `==`, `!=`, `>=`, `<=`, `>`, `<`.
The bound of a share may be a percentage. Measures are those of `report.json`. Beside the ones below:
`requests.OUTCOME`, as in `requests.hung_up`; and `latencies.ttft_ms.p99`, or any other of `ttft_ms`, `e2e_ms` and
`p50`, `p90`, `p99`, `max`, which are measured of answers that are streamed: {streamed}.
All measures, where they come from and where they are shown: [measures.md](measures.md).
"""


def page() -> str:
    """The whole page."""
    return "\n".join(_parts())


def _parts() -> Iterable[str]:
    yield _INTRODUCTION
    yield f"```yaml\n{EXAMPLE}```\n"
    yield _section("The run", RunSpec)
    yield _section("`engine`", EngineSpec)
    yield _section("`load`", LoadSpec)
    yield _section("An entry of `waivers`", Waiver)
    yield "How waivers work, and why there are any: [findings.md](findings.md).\n"
    yield _THRESHOLDS.format(streamed=f"{_streaming(Streamed.ALL)}, and {_streaming(Streamed.SOME)}")
    yield table(("measure", "meaning"), _measures())
    yield "## `load.options`, by `load.scenario`\n"
    yield "How each scenario works: `lastpage scenarios NAME`.\n"
    for name, scenario in sorted(SCENARIOS.items()):
        yield f"### {name}\n\n{' '.join(_about(scenario))}\n"
        rows = list(_rows(fields_of(scenario.Options)))
        yield table(_COLUMNS, rows) if rows else "No options.\n"


def _about(scenario: type[Scenario[Any]]) -> Iterable[str]:
    yield f"{scenario.summary}."
    if scenario.is_default:
        yield "It is the default."
    if scenario.targets_cells:
        yield "It aims at cells that were not yet hit, as `until_coverage` asks for."
    if not scenario.follows:
        yield "What it sends depends on options and seed alone."


def _streaming(which: Streamed) -> str:
    names = [f"`{name}`" for name, scenario in sorted(SCENARIOS.items()) if scenario.streamed is which]
    return f"{which.value} of {' and '.join(names)}"


_WITH_KEYS = {name for name, measure in MEASURES.items() if measure.keys}
"""Those are told in the text."""

_COLUMNS = ("key", "default", "allowed", "meaning")


def _section(heading: str, model: type[BaseModel]) -> str:
    return f"## {heading}\n\n{table(_COLUMNS, _rows(fields_of(model), nested=model is not RunSpec))}"


def _rows(fields: Iterable[FieldText], prefix: str = "", *, nested: bool = True) -> Iterable[tuple[str, ...]]:
    for field in fields:
        default = f"`{field.default}`" if field.default else "has to be given"
        if field.inner and not nested:
            yield f"`{field.name}`", "", "mapping", "see below"
            continue
        yield f"`{prefix}{field.name}`", default, field.allowed, field.description
        yield from _rows(field.inner, f"{prefix}{field.name}.")


def _measures() -> Iterable[tuple[str, str]]:
    for name, measure in sorted(BOUNDED.items()):
        if name.partition(".")[0] not in _WITH_KEYS:
            yield f"`{name}`", measure.help


def table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A table of Markdown."""
    lines = [columns, ("---",) * len(columns), *rows]
    cells = (" | ".join(cell.replace("|", "\\|") for cell in line) for line in lines)
    return "\n".join(f"| {line} |" for line in cells) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
