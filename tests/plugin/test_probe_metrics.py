"""Claims about the series that the probe adds to SGLang's own /metrics."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# In a process of its own, as it is in the scheduler: the series go to prometheus_client's one registry.
PROGRAM = """
import time
from prometheus_client import REGISTRY
from service.plugin import metrics
from service.plugin.flight import Totals

metrics._INTERVAL_SECONDS = 0.01
totals = Totals(decode_steps=5, crossing_steps=4, tight_steps=3, clamped_steps=2, critical_steps=1)
metrics.MetricsPublisher(lambda: totals, pool_pages=32).start()

def wait_for(steps):
    while REGISTRY.get_sample_value("lastpage_decode_steps_total") != steps:
        time.sleep(0.005)

wait_for(5)
totals = Totals(
    decode_steps=9,
    crossing_steps=8,
    tight_steps=7,
    clamped_steps=6,
    critical_steps=5,
    evicted_pages=4,
    tight_prefill_batches=3,
)
wait_for(9)
for name in ("crossing", "tight", "clamped", "critical"):
    print(name, REGISTRY.get_sample_value(f"lastpage_{name}_steps_total"))
for name in ("evicted_pages", "tight_prefill_batches"):
    print(name, REGISTRY.get_sample_value(f"lastpage_{name}_total"))
print("pool", REGISTRY.get_sample_value("lastpage_pool_pages"))
"""


def test_totals_are_published_as_counters_and_the_pool_as_a_gauge() -> None:
    command = [sys.executable, "-c", PROGRAM]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert dict(line.split() for line in ran.stdout.splitlines()) == {
        "crossing": "8.0",
        "tight": "7.0",
        "clamped": "6.0",
        "critical": "5.0",
        "evicted_pages": "4.0",
        "tight_prefill_batches": "3.0",
        "pool": "32.0",
    }
