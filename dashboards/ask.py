"""Asks a Prometheus what a dashboard asks it, with Grafana's variables filled in. Standard library only."""

from __future__ import annotations

import json
import math
import re
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass

ANSWER_SECONDS = 30.0


@dataclass(frozen=True)
class Series:
    """One series of an answer.

    Attributes:
        times, values: Unix times in seconds, and the values then; without those that are no numbers.
    """

    labels: dict[str, str]
    times: tuple[float, ...]
    values: tuple[float, ...]


class PrometheusError(RuntimeError):
    """Prometheus refused a query. The message is its own."""


def filled_in(expression: str) -> str:
    """A panel's query as Grafana would send it when all runs are chosen."""
    # For the interval Grafana takes four times that of the scrapes, at least.
    values = {"run": ".*", "engine": ".*", "version": ".*", "__rate_interval": "20s"}
    return re.sub(r"\$(\w+)", lambda found: values[found[1]], expression)


def query_range(url: str, expression: str, start: float, end: float, step: float) -> list[Series]:
    """What an expression was between two times, one series a set of labels; series without any number are left out.

    Raises:
        PrometheusError: the expression is refused.
    """
    parameters = {"query": expression, "start": start, "end": end, "step": step}
    address = f"{url}/api/v1/query_range?{urllib.parse.urlencode(parameters)}"
    try:
        with urllib.request.urlopen(address, timeout=ANSWER_SECONDS) as response:
            answer = json.load(response)
    except urllib.error.HTTPError as error:
        raise PrometheusError(f"{expression}: {error.read().decode(errors='replace')}") from None
    return [series for result in answer["data"]["result"] if (series := _series(result)).values]


def _series(result: dict[str, object]) -> Series:
    labels, values = result["metric"], result["values"]
    assert isinstance(labels, dict) and isinstance(values, list)
    numbers = [(float(at), float(value)) for at, value in values]
    finite = [(at, value) for at, value in numbers if math.isfinite(value)]
    return Series(dict(labels), tuple(at for at, _ in finite), tuple(value for _, value in finite))
