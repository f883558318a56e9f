"""Claims about a crash's evidence: what was sent, what was recorded, and why it is called what it is called."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loadgen.clock import REAL
from loadgen.requests.wave import SentWave, Wave
from loadgen.scenarios import Restart
from loadgen.sglang.shape import Shape
from service.engine.crash.classify import CrashKind
from service.engine.process.death import EngineDeath
from service.execution.evidence import STEPS_KEPT, SentWaves, describe_crash, unkillable, write_steps
from service.execution.recording import Recording
from service.execution.watch import Alarm, Sign
from service.plugin.flight import AllocationOutcome

from .recordings import record

OUT_OF_BOUNDS = IndexError("index 1 is out of bounds for dimension 0 with size 1")
SECOND = 1_000_000_000


def engine(folder: Path, log: str = "", device_log: str = "") -> Any:
    """What is asked of an engine's process once it is stopped."""
    return SimpleNamespace(
        plan=SimpleNamespace(folder=folder, clock=REAL),
        log_tail=lambda lines: log,
        device_log_tail=lambda lines: device_log,
    )


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def died(**how: Any) -> Alarm:
    now = time.monotonic_ns()
    given: dict[str, Any] = {"role": "scheduler", "pid": 7, "code": None, "signal": None, "noticed_ns": now}
    return Alarm(Sign.DEATH, now, now - SECOND // 2, EngineDeath(**{**given, **how}))


def test_the_plan_has_what_was_sent_and_when_the_load_began_anew(tmp_path: Path) -> None:
    waves = SentWaves()
    waves.add(SentWave(0.00004, 0, 0, 1, Wave.of((Shape(105, 25), Shape(104, 26)))))
    waves.add(SentWave(1.5, 40, 0, 3, Wave.of((Shape(9, 3),))))
    waves.write(tmp_path, [Restart(0.75, "the server's queue ran dry", "the server's queue ran dry")])
    assert lines(tmp_path / "plan.jsonl") == [
        {
            "elapsed_seconds": 0.0,
            "requests": [
                {"prompt_tokens": 105, "max_new_tokens": 25},
                {"prompt_tokens": 104, "max_new_tokens": 26},
            ],
        },
        {"elapsed_seconds": 0.75, "restart": "the server's queue ran dry"},
        {"elapsed_seconds": 1.5, "requests": [{"prompt_tokens": 9, "max_new_tokens": 3}]},
    ]


def test_the_last_waves_are_kept(tmp_path: Path) -> None:
    waves = SentWaves()
    for number in range(3000):
        waves.add(SentWave(float(number), number, 0, number, Wave.of((Shape(1, 1),))))
    waves.write(tmp_path, [])
    kept = [line["elapsed_seconds"] for line in lines(tmp_path / "plan.jsonl")]
    assert kept == [float(number) for number in range(1000, 3000)]


def test_a_crash_in_the_allocator_is_told_by_its_exception_and_its_step(tmp_path: Path) -> None:
    writer = record(tmp_path / "flight.bin")
    for _ in range(1500):
        writer.enter(16, 0, 1, 0)
        writer.leave(AllocationOutcome.RETURNED)
    ready_ns = time.monotonic_ns()
    recording = Recording(tmp_path / "flight.bin")
    writer.enter(16, 1, 1, 15)
    writer.leave(AllocationOutcome.RAISED)
    writer.raised(OUT_OF_BOUNDS)
    now = time.monotonic_ns()
    alarm = Alarm(Sign.EXCEPTION, noticed_ns=now, since_ns=now - SECOND // 50)
    crash = describe_crash(alarm, engine(tmp_path), recording, ready_ns, oom_kills=0)
    assert crash.kind is CrashKind.OOB_INDEX
    assert "index 1 is out of bounds" in crash.reason
    assert crash.step == 1501
    assert crash.seconds_after_ready is not None and 0 <= crash.seconds_after_ready < 5
    assert crash.noticed_after_seconds == pytest.approx(0.02)
    assert crash.evidence == {
        "log": "engine.log",
        "plan": "plan.jsonl",
        "flight": "flight.bin",
        "steps": "steps.jsonl",
    }
    write_steps(tmp_path, recording.last(STEPS_KEPT))
    steps = lines(tmp_path / "steps.jsonl")
    assert [step["step"] for step in steps] == list(range(502, 1502))
    last = {name: value for name, value in steps[-1].items() if name != "at_ns"}
    assert last == {
        "step": 1501,
        "batch_size": 16,
        "need": 1,
        "free": 1,
        "trailing": 15,
        "prefill_batches": 0,
        "retractions": 0,
        "evicted_pages": 0,
        "cached": 0,
        "outcome": "raised",
    }


def test_without_a_recording_the_log_is_the_evidence(tmp_path: Path) -> None:
    crash = describe_crash(died(signal=9), engine(tmp_path), None, ready_ns=0, oom_kills=0)
    assert (crash.kind, crash.step, crash.seconds_after_ready) == (CrashKind.KILLED, None, None)
    assert crash.evidence == {"log": "engine.log", "plan": "plan.jsonl"}
    assert "scheduler (pid 7) was ended by SIGKILL" in crash.reason
    assert not (tmp_path / "steps.jsonl").exists()


def test_a_kill_while_the_kernel_ran_out_of_memory_is_told_apart(tmp_path: Path) -> None:
    crash = describe_crash(died(signal=9), engine(tmp_path), None, ready_ns=0, oom_kills=1)
    assert crash.kind is CrashKind.HOST_OOM


@pytest.mark.parametrize("sign", [Sign.HANG, Sign.SILENCE])
def test_an_engine_that_does_nothing_is_a_hang_and_says_what_it_did_not_do(tmp_path: Path, sign: Sign) -> None:
    now = time.monotonic_ns()
    crash = describe_crash(Alarm(sign, now, now - 15 * SECOND), engine(tmp_path), None, 0, 0)
    assert crash.kind is CrashKind.HANG
    assert sign.value in crash.reason
    assert crash.noticed_after_seconds == pytest.approx(15)


def test_the_devices_own_log_is_read_too(tmp_path: Path) -> None:
    stopped = engine(tmp_path, device_log="[ERROR] RUNTIME: aicore exception, error code 507015")
    assert describe_crash(died(code=1), stopped, None, 0, 0).kind is CrashKind.AICORE_ERROR
    assert describe_crash(died(code=1), engine(tmp_path), None, 0, 0).kind is not CrashKind.AICORE_ERROR


def test_a_crash_is_known_where_nothing_can_be_written(tmp_path: Path) -> None:
    record(tmp_path / "flight.bin")
    recording = Recording(tmp_path / "flight.bin")
    assert describe_crash(died(signal=9), engine(tmp_path / "gone"), recording, 0, 0).kind is CrashKind.KILLED


def test_evidence_that_cannot_be_written_is_no_silence(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        write_steps(tmp_path / "gone", [])


def test_an_engine_that_outlives_sigkill_is_a_crash() -> None:
    assert "pids 7" in unkillable("still running after SIGKILL: pids 7").reason
