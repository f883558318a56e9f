"""*Pool pressure*: whether the pool is driven to exhaustion, and how exactly."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from dashboards.frame import frame
from dashboards.panels import ANY_IS_BAD, FULL, MORE_IS_BETTER, buckets, lines, number
from dashboards.queries import growth, of_run, ours, rate, whole_quantile
from service.measures import COUNTED
from service.monitoring.series import SERIES

UID = "lastpage-pool-pressure"
BY_RUN = "{{run_id}}"
HIT = 'state="hit"'
REACHABLE = 'state=~"hit|missing"'


def build() -> Dashboard:
    board = frame(UID, "Pool pressure", "How close to exhaustion the KV page pool is driven, step by step.")
    _edge(board)
    _coverage(board)
    _pool(board)
    _needs(board)
    _counters(board)
    return board


def _edge(board: Dashboard) -> None:
    board.with_row(Row("The edge"))
    board.with_panel(
        number(
            "Critical share",
            "Of the decode steps of the last moments, how many would have read past the free list without the clamp.",
            f"{of_run(rate('lastpage_critical_steps_total'))} / {of_run(rate('lastpage_decode_steps_total'))}",
            unit="percentunit",
            steps=((None, "orange"), (0.1, "yellow"), (0.6, "green")),
        )
    )
    board.with_panel(
        number(
            "Critical steps",
            "Tight and clamped decode steps since the controller started.",
            ours("lastpage_critical_steps_total"),
            unit="short",
            steps=MORE_IS_BETTER,
            when_none="no controller",
        )
    )
    board.with_panel(
        number(
            "Under load",
            "How long the run has been under load.",
            of_run(ours("lastpage_run_load_seconds")),
            unit="s",
        )
    )
    board.with_panel(
        number(
            "Pool",
            "Pages that the engine's KV pool has.",
            of_run(ours("lastpage_pool_pages")),
            unit="short",
        )
    )
    board.with_panel(
        number(
            "Free pages",
            "Free pages before the last decode step's allocation, at the moment of the scrape.",
            of_run(ours("lastpage_pool_free_pages")),
            unit="short",
        )
    )
    board.with_panel(
        number(
            "Crashes",
            "Crashes of engines since the controller started.",
            f"sum({ours('lastpage_crashes_total')})",
            unit="short",
            steps=ANY_IS_BAD,
            when_none="no controller",
        )
    )
    board.with_panel(
        lines(
            "Steps a second",
            "Crossing: a row needs a new page. Tight: as many pages are needed as are free. Clamped: the clamp changes "
            "an index. Critical: both, which is what the soak is for. Crashes are marked.",
            [
                (f"sum({of_run(rate(f'lastpage_{kind}_steps_total'))})", kind)
                for kind in ("critical", "tight", "clamped", "crossing", "decode")
            ],
            unit="ops",
        )
    )
    board.with_panel(
        lines(
            "Shares of decode steps",
            "How many of the decode steps are of each kind.",
            [
                (
                    f"sum({of_run(rate(f'lastpage_{kind}_steps_total'))}) "
                    f"/ sum({of_run(rate('lastpage_decode_steps_total'))})",
                    kind,
                )
                for kind in ("critical", "tight", "clamped", "crossing")
            ],
            unit="percentunit",
            largest=1,
        )
    )


def _coverage(board: Dashboard) -> None:
    board.with_row(Row("Coverage of the edge"))
    board.with_panel(
        lines(
            "Coverage",
            "Of the shapes of a tight step that can exist on this pool, how many the run has been through: need, batch "
            "size, trailing rows, what fills the pool and what came just before.",
            [(of_run(ours("lastpage_coverage_ratio")), BY_RUN)],
            unit="percentunit",
            steps=((None, "orange"), (0.9, "green")),
            largest=1,
        )
    )
    board.with_panel(
        lines(
            "Coverage by what came just before",
            "The same share for steps right after another decode step, a prefill, an eviction and a retraction.",
            [
                (
                    f"sum by (after) ({of_run(ours('lastpage_coverage_cells', HIT))}) / "
                    f"sum by (after) ({of_run(ours('lastpage_coverage_cells', REACHABLE))})",
                    "{{after}}",
                )
            ],
            unit="percentunit",
            largest=1,
        )
    )


def _pool(board: Dashboard) -> None:
    board.with_row(Row("The pool"))
    board.with_panel(
        buckets(
            "Free pages at crossing steps",
            "The saw-tooth: how many pages were free each time a row needed one. Every step is counted, not only those "
            "that a scrape happens to meet.",
            f"sum by (le) ({of_run(growth('lastpage_crossing_free_pages_bucket'))})",
            unit="short",
        )
    )
    board.with_panel(
        buckets(
            "Pages left over at crossing steps",
            "Free pages minus needed pages: 0 is tight, below 0 the engine has to make room first.",
            f"sum by (le) ({of_run(growth('lastpage_crossing_surplus_pages_bucket'))})",
            unit="short",
        )
    )
    board.with_panel(
        lines(
            "Occupancy",
            "Pages in use, of all pages, at the moment of the scrape.",
            [(of_run(ours("lastpage_pool_occupancy_ratio")), BY_RUN)],
            unit="percentunit",
            steps=FULL,
            largest=1,
        )
    )
    board.with_panel(
        lines(
            "Free pages at crossing steps, quantiles",
            "The lowest, the middle and the highest of what was free when a row needed a page.",
            [
                (whole_quantile(share, of_run(rate("lastpage_crossing_free_pages_bucket"))), name)
                for share, name in ((0.1, "p10"), (0.5, "p50"), (0.9, "p90"))
            ],
            unit="short",
        )
    )


def _needs(board: Dashboard) -> None:
    board.with_row(Row("Needs and what they cost"))
    board.with_panel(
        lines(
            "Pages needed by a crossing step",
            "How many rows need a page in the same step.",
            [
                (whole_quantile(share, of_run(rate("lastpage_crossing_needed_pages_bucket"))), name)
                for share, name in ((0.5, "p50"), (0.99, "p99"), (1, "most"))
            ],
            unit="short",
            width=6,
        )
    )
    board.with_panel(
        lines(
            "Evictions and retractions",
            "What made room when pages were short: pages of the prefix cache that were given up, and requests that the "
            "scheduler took back. Short: decode steps for which there were too few pages all the same.",
            [
                (of_run(rate("lastpage_evicted_pages_total")), "evicted pages"),
                (of_run(rate("lastpage_retractions_total")), "retracted requests"),
                (of_run(rate("lastpage_shortfalls_total")), "steps short of pages"),
            ],
            unit="ops",
            width=6,
        )
    )
    board.with_panel(
        lines(
            "Prefill batches",
            "Prefill batches, and those that needed exactly as many pages as were free: prefill at the edge.",
            [
                (of_run(rate("lastpage_tight_prefill_batches_total")), "tight"),
                (of_run(rate("lastpage_prefill_batches_total")), "all"),
            ],
            unit="ops",
            width=6,
        )
    )
    board.with_panel(
        lines(
            "Load begun anew",
            "Times that the scenario gave up what it had built up, because its queue ran dry or the engine did the "
            "unforeseen.",
            [(of_run(growth("lastpage_load_restarts_total")), BY_RUN)],
            unit="short",
            width=6,
        )
    )


def _counters(board: Dashboard) -> None:
    board.with_row(Row("All that is counted"))
    board.with_panel(
        lines(
            "Counters",
            "What each counter of a run grows by. A counter that is added to the registry of measures appears here.",
            [(of_run(rate(SERIES[measure.name].samples[0])), measure.words) for measure in COUNTED],
            unit="ops",
            width=24,
        )
    )
