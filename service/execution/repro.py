"""`repro.yaml`: a run spec that makes the load again on which a run failed (pure, but for the writing)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from loadgen.requests.wave import SentWave
from loadgen.scenarios.waves.recorded import wave_specs_of
from loadgen.scenarios.waves.scenario import MOST_REQUESTS, Waves, WavesOptions, WaveSpec
from loadgen.sglang.server import ServerConfiguration
from service.engine.crash.crash import Crash
from service.files import write_atomically
from service.runs.folder import REPRO_FILE
from service.runs.model import Finding, Run
from service.spec.spec import LoadSpec, RunSpec
from service.spec.thresholds import effective_thresholds
from service.spec.yaml_text import dump_yaml

CRASH_LABEL = "crash"
"""The label of a repro that names the kind of crash."""

FINDING_LABEL = "finding"
"""The label of a repro that names the kind of finding, where nothing crashed."""

REPRO_THRESHOLDS = tuple(map(str, effective_thresholds(["critical_steps >= 1"])))
"""A load that is written down is sent once: one critical step that the engine survives is all it can show."""

RUN_LABEL = "repro_of"
BEGINS_LABEL = "begins"
# As many as a spec file can hold, whatever each of them says.
_MOST_WAVES = 1900
_LONGEST_NAME = 120


def repro_of(
    spec: RunSpec,
    sent_waves: Sequence[SentWave],
    cause: Mapping[str, str],
    *,
    run_id: str,
    engine: str,
    prefix_cache: bool,
) -> RunSpec | None:
    """The spec that makes a run's load again up to its end; None when nothing had been sent.

    A run of it ends with its last wave. It passes when the engine survives a critical step.

    Args:
        spec: the run's, with its seed.
        sent_waves: the last waves that it sent.
        cause: labels that say of what it is the repro.
        engine: the name of the engine that failed.
        prefix_cache: whether what was sent before the server was last idle may still matter.
    """
    waves = wave_specs_of(_kept(sent_waves), idle_is_enough=not prefix_cache)
    if not waves:
        return None
    labels = {RUN_LABEL: run_id, **cause}
    if _cut(sent_waves, prefix_cache):
        labels[BEGINS_LABEL] = "in the middle of the load: what had been sent before is not kept"
    options = options_of(waves, *maker_of(spec.load))
    changed = {"scenario": Waves.name, "options": options, "until_coverage": None}
    return spec.model_copy(
        update={
            "name": f"repro of {spec.name or run_id}"[:_LONGEST_NAME],
            "labels": labels,
            "engine": spec.engine.model_copy(update={"name": engine, "port": None}),
            "load": spec.load.model_copy(update=changed),
            "thresholds": REPRO_THRESHOLDS,
        }
    )


def options_of(waves: Sequence[WaveSpec], made_by: str | None, made_with: dict[str, Any]) -> dict[str, Any]:
    """The options of the scenario `waves` as they stand in a spec: what is as it always is stays out."""
    options = WavesOptions(waves=tuple(waves), made_by=made_by, made_with=made_with)
    return options.model_dump(mode="json", exclude_defaults=True)


def keep_repro(
    run: Run, failure: Crash | Finding, sent_waves: Sequence[SentWave], engine: str, server: ServerConfiguration
) -> dict[str, str]:
    """Write the repro of a run that failed into its folder; it as evidence, empty when nothing had been sent.

    Raises:
        OSError: it cannot be written.
    """
    label = CRASH_LABEL if isinstance(failure, Crash) else FINDING_LABEL
    repro = repro_of(
        run.spec,
        sent_waves,
        {label: failure.kind.value},
        run_id=run.id,
        engine=engine,
        prefix_cache=server.prefix_cache,
    )
    if repro is None:
        return {}
    write_atomically(run.folder / REPRO_FILE, dump_yaml(repro))
    return {"repro": REPRO_FILE}


def _kept(sent_waves: Sequence[SentWave]) -> Sequence[SentWave]:
    """The last waves, as many as a spec can hold."""
    requests = 0
    for place in range(len(sent_waves) - 1, max(-1, len(sent_waves) - 1 - _MOST_WAVES), -1):
        requests += len(sent_waves[place].wave.requests)
        if requests > MOST_REQUESTS:
            return sent_waves[place + 1 :]
    return sent_waves[-_MOST_WAVES:]


def _cut(sent_waves: Sequence[SentWave], prefix_cache: bool) -> bool:
    """Whether waves that may matter are not kept."""
    kept = _kept(sent_waves)
    return kept[0].first_number > 1 and (prefix_cache or all(wave.open_requests for wave in kept))


def maker_of(load: LoadSpec) -> tuple[str | None, dict[str, Any]]:
    """The scenario that the engine was launched for, and its options; None for waves that were written by hand."""
    if load.scenario != Waves.name:
        return load.scenario, load.options
    written = WavesOptions.model_validate(load.options)
    return written.made_by, written.made_with
