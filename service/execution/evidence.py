"""What is kept of a crash: how it is classified, and the files that show it."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from loadgen.requests.wave import SentWave
from loadgen.scenarios import Restart
from service.engine.crash.classify import Crash, CrashKind, Evidence, classify
from service.engine.process.command import FLIGHT_FILE, LOG_FILE
from service.engine.process.process import EngineProcess
from service.execution.recording import Recording, wall_time
from service.execution.watch import Alarm, Sign
from service.files import write_atomically
from service.plugin.flight import STEP_FIELDS, DecodeStep
from service.runs.folder import PLAN_FILE, STEPS_FILE

STEPS_KEPT = 1000
_WAVES_KEPT = 2000
_LOG_LINES = 2000


class SentWaves:
    """The last waves that were sent."""

    def __init__(self) -> None:
        self._waves: deque[SentWave] = deque(maxlen=_WAVES_KEPT)

    def add(self, sent: SentWave) -> None:
        self._waves.append(sent)

    @property
    def last(self) -> list[SentWave]:
        """Those that are kept, in order."""
        return list(self._waves)

    def write(self, folder: Path, restarts: Sequence[Restart]) -> None:
        """Write them to the run's folder in the order of time, one JSON object a wave or restart of the load.

        Raises:
            OSError: the file cannot be written.
        """
        lines: list[dict[str, Any]] = [
            {
                "elapsed_seconds": round(sent.elapsed, 4),
                "requests": [
                    {"prompt_tokens": request.shape.prompt_tokens, "max_new_tokens": request.shape.max_new_tokens}
                    for request in sent.wave.requests
                ],
            }
            for sent in self._waves
        ]
        lines += [{"elapsed_seconds": round(begun.elapsed, 4), "restart": begun.reason} for begun in restarts]
        _write_lines(folder / PLAN_FILE, sorted(lines, key=lambda line: line["elapsed_seconds"]))


def write_steps(folder: Path, steps: Iterable[DecodeStep]) -> None:
    """Write decode steps to the run's folder, one JSON object a step.

    Raises:
        OSError: the file cannot be written.
    """
    _write_lines(folder / STEPS_FILE, map(_step_values, steps))


def _step_values(step: DecodeStep) -> dict[str, Any]:
    values = {field.name: getattr(step, field.name) for field in STEP_FIELDS}
    return {**values, "outcome": step.outcome.name.lower()}


def describe_crash(
    alarm: Alarm, process: EngineProcess, recording: Recording | None, ready_ns: int, oom_kills: int
) -> Crash:
    """The crash that an alarm told of, with the files that show it. Called when the engine is stopped."""
    steps = recording.last(STEPS_KEPT) if recording is not None else []
    crash = classify(
        Evidence(
            exit_code=alarm.death.code if alarm.death else None,
            signal=alarm.death.signal if alarm.death else None,
            hang=alarm.sign.value if alarm.sign in (Sign.HANG, Sign.SILENCE) else "",
            oom_kills=oom_kills,
            log="\n".join((process.log_tail(_LOG_LINES), process.device_log_tail(_LOG_LINES))),
            recorder_error=recording.error if recording is not None else "",
            last_outcome=steps[-1].outcome if steps else None,
            at=wall_time(alarm.since_ns, process.plan.clock),
        )
    )
    evidence = {"log": LOG_FILE, "plan": PLAN_FILE}
    if recording is not None:
        evidence |= {"flight": FLIGHT_FILE, "steps": STEPS_FILE}
    last = steps[-1] if steps else None
    reasons = (crash.reason, crash.line.strip(), str(alarm.death) if alarm.death else "")
    return crash.model_copy(
        update={
            "reason": "; ".join(dict.fromkeys(part for part in reasons if part)),
            "step": last.step if last else None,
            "seconds_after_ready": (last.at_ns - ready_ns) / 1e9 if last else None,
            "noticed_after_seconds": (alarm.noticed_ns - alarm.since_ns) / 1e9,
            "evidence": evidence,
        }
    )


def unkillable(reason: str) -> Crash:
    """The crash of an engine whose processes outlive SIGKILL, as they do when they are stuck in a device's driver."""
    return Crash(kind=CrashKind.HANG, reason=reason, at=datetime.now(timezone.utc), evidence={"log": LOG_FILE})


def _write_lines(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    write_atomically(path, "".join(json.dumps(line) + "\n" for line in lines))
