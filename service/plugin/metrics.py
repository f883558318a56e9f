"""The recorder's totals as series of SGLang's own `/metrics`.

SGLang runs prometheus_client in multiprocess mode: a series made in the scheduler process appears at the server's
endpoint. The mode is set up while SGLang starts, so the series are made when the first step is recorded, not at import.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from .flight import Totals
from .measures import RECORDED

_INTERVAL_SECONDS = 0.5


class MetricsPublisher:
    """Publishes totals from a thread of its own, so that no decode step pays for it."""

    def __init__(self, totals: Callable[[], Totals], *, pool_pages: int) -> None:
        self._totals = totals
        self._pool_pages = pool_pages
        self._published = Totals()

    def start(self) -> None:
        threading.Thread(target=self._run, name="lastpage-metrics", daemon=True).start()

    def _run(self) -> None:
        from prometheus_client import Counter, Gauge

        gauge = Gauge("lastpage_pool_pages", "Pages in the KV pool.", multiprocess_mode="mostrecent")
        gauge.set(self._pool_pages)
        counters = {measure.name: Counter(f"lastpage_{measure.name}", measure.help) for measure in RECORDED}
        stopped = threading.Event()
        while not stopped.wait(_INTERVAL_SECONDS):
            totals = self._totals()
            for field, counter in counters.items():
                counter.inc(getattr(totals, field) - getattr(self._published, field))
            self._published = totals
