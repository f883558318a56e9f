"""*Soak overview*: which runs there were, how they ended, and how engines and releases compare."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from dashboards.frame import frame
from dashboards.panels import ANY_IS_BAD, MORE_IS_BETTER, PLAIN, bars, lines, number, rows
from dashboards.queries import CHOSEN, of_run, ours, quantile, rate

UID = "lastpage-soak-overview"
CHOSEN_ENGINE = 'engine=~"$engine", sglang_version=~"$version"'
BY_ENGINE = "engine, sglang_version, allocator"
ENGINE_LEGEND = "{{engine}} ({{sglang_version}}, {{allocator}})"


def build() -> Dashboard:
    board = frame(UID, "Soak overview", "Runs, verdicts, crashes and findings, by engine and release.")
    _verdicts(board)
    _engines(board)
    _requests(board)
    return board


def _verdicts(board: Dashboard) -> None:
    board.with_row(Row("Runs"))
    board.with_panel(
        number(
            "Since the last crash",
            "Time since an engine last crashed.",
            f"time() - {ours('lastpage_last_crash_timestamp_seconds')}",
            unit="s",
            steps=((None, "red"), (3600, "orange"), (86400, "green")),
            when_none="no crash",
        )
    )
    for verdict, steps in (
        ("pass", MORE_IS_BETTER),
        ("fail", ANY_IS_BAD),
        ("inconclusive", ((None, "text"), (1, "orange"))),
    ):
        board.with_panel(
            number(
                f"Verdict: {verdict}",
                f"Runs that ended with the verdict {verdict}, since the controller started.",
                ours("lastpage_runs_total", _of_verdict(verdict)),
                unit="short",
                steps=steps,
                when_none="no controller",
            )
        )
    board.with_panel(
        number(
            "Findings",
            "What runs found wrong with engines that did not crash, since the controller started.",
            f"sum({ours('lastpage_findings_total')})",
            unit="short",
            steps=ANY_IS_BAD,
            when_none="no controller",
        )
    )
    board.with_panel(
        number(
            "Alerts",
            "Rules of lastpage that fire now.",
            'count(ALERTS{alertname=~"Lastpage.*", alertstate="firing"}) or vector(0)',
            unit="short",
            steps=ANY_IS_BAD,
        )
    )
    board.with_panel(
        rows("Running now", "The run that has the device.", [(ours("lastpage_run_info", CHOSEN), "runs")], unit="short")
    )
    board.with_panel(
        bars(
            "Crashes by kind",
            "Crashes since the controller started.",
            f"sum by (kind) ({ours('lastpage_crashes_total')}) > 0",
            unit="short",
            legend="{{kind}}",
            steps=ANY_IS_BAD,
        )
    )
    board.with_panel(
        bars(
            "Findings by kind",
            "Findings since the controller started.",
            f"sum by (kind) ({ours('lastpage_findings_total')})",
            unit="short",
            legend="{{kind}}",
            steps=ANY_IS_BAD,
        )
    )
    board.with_panel(
        bars(
            "Waived findings by kind",
            "Findings that a spec waived as known faults, since the controller started.",
            f"sum by (kind) ({ours('lastpage_waived_findings_total')})",
            unit="short",
            legend="{{kind}}",
            steps=PLAIN,
        )
    )


def _engines(board: Dashboard) -> None:
    board.with_row(Row("Engines and releases side by side"))
    board.with_panel(
        rows(
            "Ended runs and crashes",
            "By engine, release and allocator, since the controller started.",
            [
                *(
                    (
                        f"sum by ({BY_ENGINE}) "
                        f"({ours('lastpage_engine_runs_total', _of_verdict(verdict) + ', ' + CHOSEN_ENGINE)})",
                        verdict,
                    )
                    for verdict in ("pass", "fail", "inconclusive")
                ),
                (f"sum by ({BY_ENGINE}) ({ours('lastpage_engine_crashes_total', CHOSEN_ENGINE)})", "crashes"),
            ],
            unit="short",
        )
    )
    board.with_panel(
        lines(
            "Critical steps a second",
            "By engine, release and allocator.",
            [(f"sum by ({BY_ENGINE}) ({of_run(rate('lastpage_critical_steps_total'))})", ENGINE_LEGEND)],
            unit="ops",
            width=8,
        )
    )
    board.with_panel(
        lines(
            "Decode steps a second",
            "By engine, release and allocator.",
            [(f"sum by ({BY_ENGINE}) ({of_run(rate('lastpage_decode_steps_total'))})", ENGINE_LEGEND)],
            unit="ops",
            width=8,
        )
    )
    board.with_panel(
        lines(
            "Coverage of the edge",
            "Of the shapes of a tight step that can exist on the pool, how many the run has been through.",
            [(f"max by ({BY_ENGINE}) ({of_run(ours('lastpage_coverage_ratio'))})", ENGINE_LEGEND)],
            unit="percentunit",
            steps=((None, "orange"), (0.9, "green")),
            width=8,
            largest=1,
        )
    )


def _requests(board: Dashboard) -> None:
    board.with_row(Row("Requests"))
    board.with_panel(
        lines(
            "Outcomes",
            "Requests that end, a second. Only done is success; cancelled are those that the load took back itself.",
            [(f"sum by (outcome) ({rate('lastpage_requests_total')})", "{{outcome}}")],
            unit="reqps",
            width=6,
        )
    )
    for name, title, description in (
        (
            "ttft",
            "Time to first token",
            "From sending a request to its first token, of streamed requests that ended well.",
        ),
        ("itl", "Inter-token latency", "From one token to the next, of streamed requests that ended well."),
        ("e2e", "End to end", "From sending a request to its end, of requests that ended well."),
    ):
        board.with_panel(
            lines(
                title,
                description,
                [
                    (quantile(share, of_run(rate(f"lastpage_{name}_seconds_bucket"))), legend)
                    for share, legend in ((0.5, "p50"), (0.9, "p90"), (0.99, "p99"))
                ],
                unit="s",
                width=6,
            )
        )


def _of_verdict(verdict: str) -> str:
    return f'verdict="{verdict}"'
