from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.crash.classify import CrashKind, Evidence, classify
from service.engine.crash.signatures import SIGNATURES, Weight
from service.plugin.flight import AllocationOutcome

K = CrashKind


def kind_of(log: str) -> CrashKind:
    return classify(Evidence(log=log)).kind


# What CANN, torch_npu and SGLang write, one line each.
PHRASES = [
    ("[gather_v3.h:120] Assertion `Index 5 out of range[0 5)!' failed", K.OOB_INDEX),
    ("IndexError: index 1 is out of bounds for dimension 0 with size 1", K.OOB_INDEX),
    ("The DDR address of the MTE instruction is out of range, fault kernel_name=GatherV3_a1", K.AICORE_ERROR),
    ("there is an exception of aivec error, core id is 3, error code = 0x800000", K.AICORE_ERROR),
    ("there is an exception of aicore error, core id is 3", K.AICORE_ERROR),
    ("there is an exception of fftsplus aicore error, core id is 0", K.AICORE_ERROR),
    ("there is an exception of fftsplus aivector error, core id is 0", K.AICORE_ERROR),
    ("there is an aivec error exception, core id is 31", K.AICORE_ERROR),
    ("Aicore kernel execute failed, device_id=0, stream_id=2", K.AICORE_ERROR),
    ("[Error]: The aicore execution is abnormal.", K.AICORE_ERROR),
    ("[Error]: The vector core execution is abnormal.", K.AICORE_ERROR),
    ("rtStreamSynchronize execute failed, reason=[vector core exception]", K.AICORE_ERROR),
    ("[Error]: The aicore execution times out.", K.AICORE_TIMEOUT),
    ("[Error]: Failed to apply for memory.", K.DEVICE_OOM),
    ("EL0004: [PID: 12] Failed to allocate memory.", K.DEVICE_OOM),
    ("RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 60.97 GiB total capacity)", K.DEVICE_OOM),
    ("EE1002: [PID: 12] Stream synchronize timeout.", K.DEVICE_TIMEOUT),
    ("EI0002: [PID: 12] The wait execution of the Notify register times out.", K.HCCL),
    ("EI0006: [PID: 12] Getting socket times out.", K.HCCL),
    ("[rank3] Watchdog caught collective operation timeout: WorkHCCL(SeqNum=17, OpType=ALLREDUCE)", K.HCCL),
    ("[rank3] HCCL watchdog thread terminated with exception: ...", K.HCCL),
    ("hccl fftsplus task timeout", K.HCCL),
    ("EZ9999: Inner Error!", K.DEVICE_RUNTIME),
    ("EE9999: Inner Error!", K.DEVICE_RUNTIME),
    ("EH9999: Inner Error!", K.DEVICE_RUNTIME),
    ("E39999: Inner Error!", K.DEVICE_RUNTIME),
    ("EI9999: Inner Error!", K.HCCL),
    ("[ERROR] 2026-01-02-03:04:05 (PID:12, Device:0, RankID:-1) ERR00100 PTA call acl api failed", K.DEVICE_RUNTIME),
    ("[ERROR] 2026-01-02-03:04:05 (PID:12, Device:0, RankID:-1) ERR01005 OPS internal error", K.DEVICE_RUNTIME),
    ("[ERROR] 2026-01-02-03:04:05 (PID:12, Device:0, RankID:0) ERR02005 DIST internal error", K.HCCL),
    ("[ERROR] 2026-01-02-03:04:05 (PID:12, Device:0, RankID:0) ERR02200 DIST call hccl api failed", K.HCCL),
    ("[ERROR] 2026-01-02-03:04:05 (PID:12, Device:0, RankID:-1) ERR00006 PTA memory error", K.DEVICE_OOM),
    ("[ERROR] 2026-01-02-03:04:05 (PID:12, Device:0, RankID:-1) ERR00011 PTA timeout", K.DEVICE_TIMEOUT),
    ("[ERROR] 2026-01-02-03:04:05 (PID:12, Device:0, RankID:-1) ERR99999 unknown", K.DEVICE_RUNTIME),
    ("ValueError: token_to_kv_pool_allocator memory leak detected! [full] total=4096, available=3968", K.POOL_LEAK),
    ("ValueError: req_to_token_pool memory leak detected!available_size=2047, total_size=2048", K.POOL_LEAK),
    ("AssertionError: Full Pool Mem Leak Detected! [full] total=4096, available=3968", K.POOL_LEAK),
    ("RuntimeError: Decode out of memory. Try to lower your batch size.", K.ALLOCATOR_EXHAUSTED),
    ("RuntimeError: Prefill out of memory. Try to lower your batch size.", K.ALLOCATOR_EXHAUSTED),
    ("RuntimeError: KV cache is full! Bug in memory estimation.", K.ALLOCATOR_EXHAUSTED),
    ("RuntimeError: alloc_req_slots runs out of memory. Please set a smaller number", K.ALLOCATOR_EXHAUSTED),
    ("Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)", K.HANG),
    ("MemoryError", K.HOST_OOM),
    ("RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate", K.HOST_OOM),
    ("terminate called after throwing an instance of 'std::bad_alloc'", K.HOST_OOM),
    ("kernel: Out of memory: Killed process 123 (sglang::schedul) total-vm:7273704kB", K.HOST_OOM),
    ("Fatal Python error: Segmentation fault", K.SEGFAULT),
    ("Fatal Python error: Bus error", K.BUS_ERROR),
    ("Fatal Python error: Aborted", K.ABORTED),
]

CODES = {
    K.AICORE_ERROR: [507015, 507035, 507016, 507036, 507042, 507043, 507044, 507045],
    K.AICORE_TIMEOUT: [507014, 507034],
    K.AICPU_ERROR: [507017, 507018],
    K.DEVICE_RUNTIME: [507001, 507049, 107027, 507011, 107022],
    K.DEVICE_TIMEOUT: [507046, 507047, 507048],
    K.HARDWARE_MEMORY: [507053, 507054, 507055],
    K.LINK_ERROR: [507056, 507057],
    K.DEVICE_LOST: [507010, 507901],
    K.DEVICE_OOM: [207001, 207018],
}


@pytest.mark.parametrize(("line", "kind"), PHRASES)
def test_phrase_alone_decides(line: str, kind: CrashKind) -> None:
    found = classify(Evidence(log=f"[2026-11-30 03:32:13] quiet\n{line}\nquiet"))
    assert (found.kind, found.line) == (kind, line)


@pytest.mark.parametrize(("kind", "code"), [(kind, code) for kind, codes in CODES.items() for code in codes])
@pytest.mark.parametrize("form", ["error code is {}", "error code:{}", "retCode is {}", "runtime result = {}."])
def test_error_code_decides_in_every_form(kind: CrashKind, code: int, form: str) -> None:
    assert kind_of(f"NPU function error: aclrtSynchronizeStream, {form.format(code)}") is kind


def test_every_row_of_the_table_is_reached_by_a_line_here() -> None:
    lines = [line for line, _ in PHRASES]
    lines += [f"error code is {code}" for codes in CODES.values() for code in codes]
    unreached = [row.pattern.pattern for row in SIGNATURES if not any(row.pattern.search(line) for line in lines)]
    assert unreached == []


@pytest.mark.parametrize("number", ["1507015", "5070150", "0x507015"])
def test_number_that_only_contains_a_code_is_none(number: str) -> None:
    assert kind_of(f"error code is {number}") is K.UNKNOWN


ALLOC_DECODE_0_5_18 = """\
[2026-11-30 03:32:12] Decode batch, #running-req: 5, #token: 1280, token usage: 0.83, #queue-req: 3
[2026-11-30 03:32:13] Scheduler hit an exception: Traceback (most recent call last):
  File "/engine/sglang/srt/managers/scheduler.py", line 5064, in run_scheduler_process
    scheduler.run_event_loop()
  File "/engine/sglang/srt/mem_cache/allocation.py", line 488, in alloc_paged_token_slots_decode
    out = allocator.alloc_decode(seq_lens, seq_lens_cpu, last_loc, **extra_alloc_kwargs)
          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/engine/sglang/srt/hardware_backend/npu/allocator_npu.py", line 129, in alloc_decode
    out_indices = (last_loc + 1) * (1 - need_new_pages) + self.free_pages[
                                                          ^^^^^^^^^^^^^^^^
IndexError: index 1 is out of bounds for dimension 0 with size 1

[2026-11-30 03:32:13] SIGQUIT received. signum=None, frame=None. It usually means one child failed.
[2026-11-30 03:32:13] Sleeping 5 seconds before crash diagnostics to let GPU activity settle.
[2026-11-30 03:32:18] kill_process_tree called: parent_pid=9949, include_parent=True, pid=9949
"""

SCHEDULER_KILLED_0_5_23 = """\
[2026-11-30 03:29:14] Prefill batch, #new-seq: 1, #new-token: 4, #cached-token: 0, token usage: 0.03
[2026-11-30 03:29:14] Subprocess scheduler_0 (pid=8684) crashed with exit code {code}. Triggering SIGQUIT for cleanup...
[2026-11-30 03:29:14] SIGQUIT received. signum=None, frame=None. It usually means one child failed.
[2026-11-30 03:29:19] kill_process_tree called: parent_pid=8486, include_parent=True, pid=8486
"""


def test_out_of_bounds_read_of_0_5_18_is_told_with_its_place() -> None:
    found = classify(Evidence(exit_code=0, log=ALLOC_DECODE_0_5_18, last_outcome=AllocationOutcome.RAISED))
    assert found.kind is K.OOB_INDEX
    assert found.reason == "a tensor was indexed out of bounds: index 1 of 1, one past the end, in alloc_decode"
    assert found.line == "IndexError: index 1 is out of bounds for dimension 0 with size 1"


@pytest.mark.parametrize("last_outcome", [AllocationOutcome.RAISED, AllocationOutcome.RETURNED])
def test_recorder_tells_when_the_log_was_lost(last_outcome: AllocationOutcome) -> None:
    error = "IndexError: index 1 is out of bounds for dimension 0 with size 1"
    found = classify(Evidence(signal=9, recorder_error=error, last_outcome=last_outcome))
    where = "alloc_decode" if last_outcome is AllocationOutcome.RAISED else "alloc_extend"
    assert found.kind is K.OOB_INDEX and found.reason.endswith(f"in {where}")


@pytest.mark.parametrize(
    ("code", "oom_kills", "kind"),
    [
        ("-9", 0, K.KILLED),
        ("-9", 1, K.HOST_OOM),
        ("137", 1, K.HOST_OOM),
        ("-15", 0, K.KILLED),
        ("-6", 0, K.ABORTED),
        ("-7", 0, K.BUS_ERROR),
        ("-11", 0, K.SEGFAULT),
        ("1", 0, K.UNKNOWN),
    ],
)
def test_scheduler_that_a_signal_ended_is_told_by_sglangs_own_line(code: str, oom_kills: int, kind: CrashKind) -> None:
    """SGLang then ends itself by SIGKILL, which says nothing."""
    log = SCHEDULER_KILLED_0_5_23.format(code=code)
    assert classify(Evidence(signal=signal.SIGKILL, oom_kills=oom_kills, log=log)).kind is kind


@pytest.mark.parametrize(
    ("evidence", "kind"),
    [
        (Evidence(signal=9), K.KILLED),
        (Evidence(exit_code=137), K.KILLED),
        (Evidence(signal=9, oom_kills=2), K.HOST_OOM),
        (Evidence(exit_code=137, oom_kills=1), K.HOST_OOM),
        (Evidence(exit_code=1, oom_kills=1), K.UNKNOWN),
        (Evidence(signal=6), K.ABORTED),
        (Evidence(signal=7), K.BUS_ERROR),
        (Evidence(signal=11), K.SEGFAULT),
        (Evidence(signal=64), K.UNKNOWN),
        (Evidence(exit_code=0), K.UNKNOWN),
        (Evidence(), K.UNKNOWN),
        (Evidence(exit_code=1, last_outcome=AllocationOutcome.SHORT), K.ALLOCATOR_EXHAUSTED),
    ],
)
def test_end_of_the_process_decides_when_nothing_else_does(evidence: Evidence, kind: CrashKind) -> None:
    assert classify(evidence).kind is kind


def test_sigkill_that_sglang_gave_itself_is_not_called_killed() -> None:
    log = "[2026-11-30 03:32:13] SIGQUIT received. signum=None, frame=None. It usually means one child failed."
    assert classify(Evidence(signal=9, log=log)).kind is K.UNKNOWN


def test_log_says_more_than_the_signal() -> None:
    assert classify(Evidence(signal=6, log="NPU out of memory. Tried to allocate 2.00 GiB")).kind is K.DEVICE_OOM


def test_any_other_exception_of_the_scheduler_is_told() -> None:
    log = """\
[2026-11-30 03:32:13] Scheduler hit an exception: Traceback (most recent call last):
  File "/engine/sglang/srt/managers/scheduler.py", line 1, in run
    raise KeyError("rid")
KeyError: 'rid'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/engine/sglang/srt/managers/scheduler.py", line 2, in run
    raise RuntimeError("no such request")
RuntimeError: no such request

[2026-11-30 03:32:13] SIGQUIT received. signum=None, frame=None. It usually means one child failed.
"""
    found = classify(Evidence(signal=9, log=log))
    assert found.kind is K.SCHEDULER_EXCEPTION
    assert found.line == "RuntimeError: no such request"


def test_exception_of_another_process_is_not_called_the_schedulers() -> None:
    log = "[2026-11-30 03:32:13] DetokenizerManager hit an exception: Traceback (most recent...):\n  x\nKeyError: 1"
    found = classify(Evidence(log=log))
    assert found.kind is K.UNKNOWN and found.line == "KeyError: 1"


def test_only_the_start_of_a_long_line_is_looked_at() -> None:
    """Patterns are matched in time that may grow faster than the line, and an engine can log a whole prompt."""
    assert kind_of("x" * 1000 + " MemoryError") is K.HOST_OOM
    assert kind_of("x" * 20_000 + " MemoryError") is K.UNKNOWN
    said = classify(
        Evidence(log="\n".join(["x" * 20_000] * 200 + ["Scheduler hit an exception: KeyError" + "y" * 9999]))
    )
    assert said.kind is K.SCHEDULER_EXCEPTION and len(said.line) == 2000


def test_retraction_is_not_a_crash() -> None:
    for line in (
        "[2026-11-30 03:29:14] KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: 128",
        "[2026-11-30 03:29:14] Decode out of memory happened. #retracted_reqs: 1, #new_token_ratio: 0.1 -> 0.9",
    ):
        assert classify(Evidence(signal=9, log=line)).kind is K.KILLED


def test_soft_watchdog_is_not_a_hang() -> None:
    log = "Scheduler watchdog timeout (self.watchdog_timeout=10, self.soft=True)"
    assert classify(Evidence(signal=9, log=log)).kind is K.KILLED


def test_timeout_or_trap_alone_is_no_timeout() -> None:
    log = """\
[gather_v3.h:120] Assertion `Index 5 out of range[0 5)!' failed
rtStreamSynchronize execute failed, reason=[vector core exception]
errorStr: timeout or trap error, fault kernel_name=GatherV3_123,
"""
    found = classify(Evidence(log=log))
    assert found.kind is K.OOB_INDEX
    assert "index 5 of 5, one past the end" in found.reason and "GatherV3_123" in found.reason


def test_index_out_of_range_explains_an_aicore_error_that_torch_npu_printed_first() -> None:
    log = """\
[2026-01-02 03:04:05] Scheduler hit an exception: Traceback (most recent call last):
RuntimeError: copy_between_host_and_device:OpApiCommon.h:1 NPU function error: call failed, error code is 507035
[ERROR] 2026-01-02-03:04:05 (PID:12, Device:0, RankID:-1) ERR00100 PTA call acl api failed
[Error]: The vector core execution is abnormal.
EZ9999: Inner Error!
        [gather_v3.h:120] Assertion `Index 3 out of range[0 3)!' failed
"""
    assert kind_of(log) is K.OOB_INDEX


def test_earliest_cause_wins_by_time_even_when_logs_are_put_one_after_the_other() -> None:
    log = """\
[2026-01-02 03:04:07] RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB
[ERROR] RUNTIME(12,python3):2026-01-02-03:04:05.123.456 [davinci.cc:1] The aicore execution times out.
"""
    assert kind_of(log) is K.AICORE_TIMEOUT


def test_watchdog_of_hccl_is_only_a_consequence_of_a_rank_that_failed() -> None:
    log = """\
[2026-01-02 03:04:05] [rank3] Watchdog caught collective operation timeout: WorkHCCL(SeqNum=17)
[2026-01-02 03:04:06] NPU function error: aclrtSynchronizeStream, error code is 507054
"""
    assert kind_of(log) is K.HARDWARE_MEMORY


def test_absurd_amount_of_memory_is_pointed_out() -> None:
    found = classify(Evidence(log="NPU out of memory. Tried to allocate 17179869184.00 GiB (NPU 0; 61 GiB total)"))
    assert found.kind is K.DEVICE_OOM and "corrupted metadata" in found.reason
    assert "corrupted" not in classify(Evidence(log="NPU out of memory. Tried to allocate 2.00 GiB")).reason
    assert kind_of("NPU out of memory. Tried to allocate 512.00 MiB") is K.DEVICE_OOM


def test_hang_yields_to_a_cause_in_the_log_and_not_to_a_symptom() -> None:
    assert classify(Evidence(hang="no decode step")).kind is K.HANG
    assert classify(Evidence(hang="no decode step", log="error code is 507014")).kind is K.AICORE_TIMEOUT
    assert classify(Evidence(hang="no decode step", log="hccl fftsplus task timeout")).kind is K.HANG


def test_error_that_the_engine_survived_is_not_its_death() -> None:
    batch = "[2026-11-30 03:32:12] Decode batch, #running-req: 5, #token: 1280, token usage: 0.83\n"
    error = "IndexError: index 9 is out of bounds for dimension 0 with size 5\n"
    assert classify(Evidence(signal=9, log=error + 3 * batch)).kind is K.KILLED
    assert classify(Evidence(signal=9, log=3 * batch + error + batch)).kind is K.OOB_INDEX


LINES = st.lists(st.sampled_from([line for line, _ in PHRASES] + ["", "  ", "Decode batch,", "quiet"]), max_size=12)


@given(LINES, st.none() | st.integers(0, 255), st.none() | st.integers(1, 64), st.sampled_from(["", "no decode step"]))
def test_any_evidence_is_classified_with_a_reason(
    lines: list[str], code: int | None, number: int | None, hang: str
) -> None:
    found = classify(Evidence(exit_code=code, signal=number, hang=hang, log="\n".join(lines)))
    assert found.reason and "\n" not in found.reason


@given(LINES)
def test_what_names_only_a_layer_never_wins_over_a_cause(lines: list[str]) -> None:
    weights = [min((row.weight for row in SIGNATURES if row.pattern.search(line)), default=None) for line in lines]
    causes = [line for line, weight in zip(lines, weights, strict=True) if weight is Weight.CAUSE]
    batches = sum("batch" in line for line in lines)
    if causes and batches < 3:
        assert classify(Evidence(log="\n".join(lines))).line in causes
