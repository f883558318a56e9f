"""*Engine*: SGLang's own series beside ours, and the NPU where an npu-exporter is scraped."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from dashboards.frame import frame
from dashboards.panels import FULL, lines
from dashboards.queries import ENGINE, of_run, ours, quantile, rate

UID = "lastpage-engine"


def build() -> Dashboard:
    board = frame(UID, "Engine", "What the engine says of itself, beside what the controller measures.")
    _scheduler(board)
    _latencies(board)
    _npu(board)
    return board


def _scheduler(board: Dashboard) -> None:
    board.with_row(Row("Scheduler"))
    board.with_panel(
        lines(
            "Pool in use",
            "SGLang's token usage counts tokens, and is refreshed every 40 decode steps unless told otherwise. "
            "Ours counts pages.",
            [
                (f"sglang:token_usage{ENGINE}", "SGLang: tokens"),
                (of_run(ours("lastpage_pool_occupancy_ratio")), "lastpage: pages"),
            ],
            unit="percentunit",
            steps=FULL,
            largest=1,
            width=8,
        )
    )
    board.with_panel(
        lines(
            "Requests in the scheduler",
            "Running and waiting requests.",
            [
                (f"sglang:num_running_reqs{ENGINE}", "running"),
                (f"sglang:num_queue_reqs{ENGINE}", "waiting"),
            ],
            unit="short",
            width=8,
        )
    )
    board.with_panel(
        lines(
            "Retractions",
            "Retracted requests: SGLang's gauge of those in the last batch, and ours counted a second.",
            [
                (f"sglang:num_retracted_reqs{ENGINE}", "SGLang: retracted"),
                (of_run(rate("lastpage_retractions_total")), "lastpage: a second"),
            ],
            unit="short",
            width=8,
        )
    )
    board.with_panel(
        lines(
            "Tokens a second",
            "Throughput of generation, as SGLang measures it.",
            [(f"sglang:gen_throughput{ENGINE}", "generated")],
            unit="short",
            width=8,
        )
    )
    board.with_panel(
        lines(
            "Free and used tokens",
            "The KV pool in tokens, as SGLang counts it.",
            [
                (f"sglang:kv_available_tokens{ENGINE}", "free"),
                (f"sglang:kv_used_tokens{ENGINE}", "used"),
                (f"sglang:kv_evictable_tokens{ENGINE}", "evictable"),
            ],
            unit="short",
            width=8,
        )
    )
    board.with_panel(
        lines(
            "New token ratio",
            "The share of its remaining tokens that admission reserves for a running request: high after a retraction.",
            [(f"sglang:new_token_ratio{ENGINE}", "ratio")],
            unit="percentunit",
            width=8,
        )
    )


def _latencies(board: Dashboard) -> None:
    board.with_row(Row("Latencies, by SGLang's own clock"))
    for metric, title, description in (
        ("time_to_first_token_seconds", "Time to first token", "From a request's arrival to its first token."),
        ("inter_token_latency_seconds", "Inter-token latency", "From one token to the next."),
        ("e2e_request_latency_seconds", "End to end", "From a request's arrival to its end."),
        ("queue_time_seconds", "Queue", "How long requests wait before they are first scheduled."),
    ):
        bucket = f"rate(sglang:{metric}_bucket{ENGINE}[$__rate_interval])"
        board.with_panel(
            lines(
                title,
                description,
                [(quantile(share, bucket), name) for share, name in ((0.5, "p50"), (0.99, "p99"))],
                unit="s",
                width=6,
            )
        )


def _npu(board: Dashboard) -> None:
    board.with_row(Row("NPU (where an npu-exporter is scraped)"))
    board.with_panel(
        lines(
            "Device memory",
            "HBM in use, by NPU. Empty without an npu-exporter.",
            [("npu_chip_info_hbm_used_memory", "NPU {{id}}")],
            unit="decmbytes",
        )
    )
    board.with_panel(
        lines(
            "Utilisation",
            "AI Core utilisation, by NPU. Empty without an npu-exporter.",
            [("npu_chip_info_utilization", "NPU {{id}}")],
            unit="percent",
            largest=100,
        )
    )
