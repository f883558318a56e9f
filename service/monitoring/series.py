"""Every series of the controller's `/metrics`, once: those of measures, and those of runs, engines and pools. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from service.measures import COUNTED, DISTRIBUTIONS, MEASURES

PREFIX = "lastpage_"
ENGINE_LABELS = ("engine", "sglang_version", "allocator")


class SeriesKind(enum.Enum):
    """A type of Prometheus, with what it puts after a family's name."""

    COUNTER = ("_total",)
    GAUGE = ("",)
    HISTOGRAM = ("_bucket", "_count", "_sum")
    INFO = ("_info",)


@dataclass(frozen=True)
class Series:
    """A family of series.

    Attributes:
        name: without the prefix, and without what its kind puts after it.
    """

    name: str
    help: str
    kind: SeriesKind
    labels: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        return PREFIX + self.name

    @property
    def samples(self) -> tuple[str, ...]:
        """The names that a query can ask for."""
        return tuple(self.family + end for end in self.kind.value)

    @property
    def shown(self) -> str:
        """Its name for people, with its labels."""
        end = "" if self.kind is SeriesKind.HISTOGRAM else self.kind.value[0]
        return self.name + end + (f"{{{','.join(self.labels)}}}" if self.labels else "")


_LABELLED = tuple(measure for measure in MEASURES.values() if measure.by)
_OF_MEASURES = (
    *(Series(measure.name, measure.help, SeriesKind.COUNTER) for measure in COUNTED),
    *(Series(measure.name, measure.help, SeriesKind.HISTOGRAM) for measure in DISTRIBUTIONS),
    *(Series(measure.name, measure.help, SeriesKind.COUNTER, (measure.by,)) for measure in _LABELLED),
)
_OF_THE_CONTROLLER = (
    Series(
        "runs",
        "Runs that have ended, without those stopped before their turn.",
        SeriesKind.COUNTER,
        ("verdict",),
    ),
    Series("engine_runs", "Runs that have ended, by engine.", SeriesKind.COUNTER, (*ENGINE_LABELS, "verdict")),
    Series("engine_crashes", "Crashes, by engine.", SeriesKind.COUNTER, ENGINE_LABELS),
    Series("last_crash_timestamp_seconds", "When an engine last crashed, Unix time.", SeriesKind.GAUGE),
)
_OF_THE_RUN = (
    Series(
        "run",
        "The run that has the device now.",
        SeriesKind.INFO,
        ("run_id", "scenario", "engine", "sglang_version", "allocator", "profile"),
    ),
    Series("run_load_seconds", "Time that the run has been under load.", SeriesKind.GAUGE),
    Series("run_planned_load_seconds", "Time under load that the run was asked for.", SeriesKind.GAUGE),
    Series("pool_pages", "Pages in the KV pool.", SeriesKind.GAUGE),
    Series("pool_free_pages", "Free pages at the last decode step.", SeriesKind.GAUGE),
    Series("pool_occupancy_ratio", "Pages in use, of all pages.", SeriesKind.GAUGE),
    Series("coverage_ratio", "Tight cells that were hit, of those that can exist on the pool.", SeriesKind.GAUGE),
    Series(
        "coverage_cells",
        "Tight cells that can exist, by what comes just before and whether they were hit; cells not foreseen.",
        SeriesKind.GAUGE,
        ("after", "state"),
    ),
)

SERIES: Mapping[str, Series] = {series.name: series for series in (*_OF_MEASURES, *_OF_THE_CONTROLLER, *_OF_THE_RUN)}
