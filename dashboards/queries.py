"""PromQL that the dashboards share (pure text)."""

from __future__ import annotations

from service.monitoring.series import SERIES

DATASOURCE_UID = "lastpage-prometheus"

CHOSEN = 'run_id=~"$run", engine=~"$engine", sglang_version=~"$version"'
RUN_LABELS = "run_id, engine, sglang_version, allocator, scenario"

ENGINE = f'{{job="sglang", {CHOSEN}}}'
"""Selector of SGLang's own series, whose targets have the run's labels."""


OURS = frozenset(name for series in SERIES.values() for name in series.samples)


def ours(metric: str, matchers: str = "") -> str:
    """A series of the controller. The engine publishes some under the same names, so the job has to be told.

    Raises:
        ValueError: the controller has no such series.
    """
    if metric not in OURS:
        raise ValueError(f"the controller has no series {metric}; those it has: {', '.join(sorted(OURS))}")
    return f'{metric}{{job="lastpage"{", " + matchers if matchers else ""}}}'


def rate(metric: str, matchers: str = "") -> str:
    """What a counter of the controller grows by, a second."""
    return f"rate({ours(metric, matchers)}[$__rate_interval])"


def growth(metric: str) -> str:
    """What a counter of the controller grew by in one step of the graph."""
    return f"increase({ours(metric)}[$__rate_interval])"


def of_run(expression: str) -> str:
    """The controller's series while one of the chosen runs is under load, with that run's labels.

    Only from then on: while an engine starts, the rates still look back on the run before.
    """
    under_load = f"({ours('lastpage_run_info', CHOSEN)} and on (instance) {ours('lastpage_run_load_seconds')})"
    return f"({expression} * on (instance) group_left ({RUN_LABELS}) {under_load})"


def quantile(share: float, bucket_rate: str) -> str:
    """A quantile of a histogram, from the rates of its buckets."""
    return f"histogram_quantile({share}, sum by (le) ({bucket_rate}))"


def whole_quantile(share: float, bucket_rate: str) -> str:
    """A quantile of whole numbers: Prometheus interpolates within a bucket as if there were something between them."""
    return f"ceil({quantile(share, bucket_rate)})"


def variable(label: str, matchers: str = "") -> str:
    """The values of a label of the runs that were in the time shown."""
    return f"label_values({ours('lastpage_run_info', matchers)}, {label})"
