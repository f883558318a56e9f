"""Claim: a counter that the probe takes is added in two places, and is then everywhere.

The project's code is copied, one line is added where it is counted and one where it is described, and a process of its
own looks at what follows.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]

DESCRIBED = (
    "service/plugin/measures.py",
    "\n\ndef counters_of(",
    '    made_up_batches: int = _counter("Batches that were made up.", "batches")\n\n\ndef counters_of(',
)
COUNTED = (
    "service/plugin/probe.py",
    '        recorder.count("prefill_batches")\n',
    '        recorder.count("prefill_batches")\n        recorder.count("made_up_batches")\n',
)

PROGRAM = """
import io, json, sys, time, types
from datetime import datetime, timezone
from pathlib import Path

sglang, torch, distributed = map(types.ModuleType, ("sglang", "torch", "torch.distributed"))
sglang.__version__, torch.distributed, distributed.is_available = "0.5.23", distributed, lambda: False
sys.modules.update({"sglang": sglang, "torch": torch, "torch.distributed": distributed})

from prometheus_client import REGISTRY, generate_latest
from rich.console import Console

from loadgen.driver import Tally
from loadgen.scenarios import Restarts
from service.execution.measuring import measures_of
from service.execution.recording import Recording
from service.monitoring.metrics import ControllerMetrics
from service.plugin import metrics
from service.plugin.flight_format import FORMAT
from service.plugin.flight_reader import FlightReader
from service.plugin.probe import Probe
from service.plugin.settings import Allocator, Profile, Settings
from service.report import measures_page, spec_page
from service.report.flight_table import print_flight
from service.report.json_report import build_report
from service.report.table import result_table
from service.runs.events import EventType, RunEvent
from service.runs.model import Measures, Progress, Run, RunStatus
from service.runs.verdict import judge
from service.spec.spec import RunSpec
from service.spec.thresholds import Threshold

metrics._INTERVAL_SECONDS = 0.01

class Tensor(list):
    def tolist(self): return list(self)
    def numel(self): return len(self)

allocator = types.SimpleNamespace(page_size=128, size=32 * 128, free_pages=Tensor(range(32)), available_size=lambda: 0)
flight = Path("flight.bin")
probe = Probe(Settings(flight=str(flight), allocator=Allocator.INSTALLED, profile=Profile.REHEARSAL))

def prefill():
    probe.around_alloc_extend(lambda *_: None, allocator, Tensor(), Tensor([0]), Tensor(), Tensor([9]))

prefill()
recording = Recording(flight)
for _ in range(3):
    prefill()

measures = measures_of(recording, Tally(), 0, 1.0, Restarts())
now = datetime.now(timezone.utc)
run = Run(id="r", spec=RunSpec(), folder=Path("."), created_at=now, started_at=now, measures=measures)
controller = ControllerMetrics()
running = run.model_copy(update={"status": RunStatus.RUNNING})
controller.observe(RunEvent(1, EventType.STATUS, now, running))
progress = Progress(
    status=RunStatus.RUNNING, elapsed_seconds=1, total_seconds=2, pool_pages=32, free_pages=8, measures=measures
)
controller.observe(RunEvent(2, EventType.PROGRESS, now, running, progress))

def printed(show):
    console = Console(file=io.StringIO(), width=200)
    show(console)
    return console.file.getvalue()

deadline = time.monotonic() + 30
while not REGISTRY.get_sample_value("lastpage_made_up_batches_total") and time.monotonic() < deadline:
    time.sleep(0.005)
print(json.dumps({
    "format": FORMAT,
    "recorded": FlightReader(flight).totals().made_up_batches,
    "report": build_report(run)["measures"]["made_up_batches"],
    "schema": Measures.model_json_schema()["properties"]["made_up_batches"]["description"],
    "threshold": judge(measures, [Threshold.parse("made_up_batches <= 2")]).reasons,
    "engine": REGISTRY.get_sample_value("lastpage_made_up_batches_total"),
    "controller": generate_latest(controller.registry()).decode(),
    "flight_table": printed(lambda console: print_flight(console, FlightReader(flight), 10)),
    "result_table": printed(lambda console: console.print(result_table(measures))),
    "measures_page": measures_page.page(),
    "spec_page": spec_page.page(),
}))
"""


def answer_of(folder: Path, program: str) -> Any:
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("copy")
    for package in ("service", "loadgen"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    for file, before, after in (DESCRIBED, COUNTED):
        text = (folder / file).read_text()
        assert text.count(before) == 1, f"{file} is no longer what this test changes"
        (folder / file).write_text(text.replace(before, after))
    return answer_of(folder, PROGRAM)


def test_it_is_in_the_recording_whose_format_is_another(seen: Any) -> None:
    from service.plugin.flight_format import FORMAT

    assert seen["recorded"] == 4
    assert seen["format"] != FORMAT


def test_it_is_in_the_report_counted_under_load_and_in_its_schema(seen: Any) -> None:
    assert seen["report"] == 3
    assert seen["schema"] == "Batches that were made up."


def test_a_threshold_can_name_it(seen: Any) -> None:
    assert seen["threshold"] == ["made_up_batches is 3, expected <= 2"]


def test_both_metrics_have_it(seen: Any) -> None:
    assert seen["engine"] == 4
    assert "# HELP lastpage_made_up_batches_total Batches that were made up.\n" in seen["controller"]
    assert "\nlastpage_made_up_batches_total 3.0\n" in seen["controller"]


def test_the_tables_show_it(seen: Any) -> None:
    assert "4 made up batches" in seen["flight_table"]
    (row,) = [line.split() for line in seen["result_table"].splitlines() if "made up batches" in line]
    assert [word for word in row if word != "│"][:4] == ["made", "up", "batches", "3"]


def test_the_reference_pages_have_it(seen: Any) -> None:
    assert "| `made_up_batches` | Batches that were made up. |" in seen["measures_page"]
    assert "`made_up_batches_total` | counter | Batches that were made up." in seen["measures_page"]
    assert "| `made_up_batches` | Batches that were made up. |" in seen["spec_page"]
