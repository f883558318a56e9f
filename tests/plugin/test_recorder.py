"""Claims about the flight recorder: what is written is read, whenever, by whomever, and after any death."""

from __future__ import annotations

import dataclasses
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.plugin.flight import STEP_FIELDS, AllocationOutcome, DecodeStep, NotAFlightFile, StepField, Totals
from service.plugin.flight_format import FORMAT, HEADER_SIZE, RECORD, TOTALS, format_of
from service.plugin.flight_reader import FlightReader
from service.plugin.recorder import FlightRecorder

ROOT = Path(__file__).resolve().parents[2]


def record(path: Path, **changes: Any) -> FlightRecorder:
    given: dict[str, Any] = {"page_size": 128, "pool_pages": 32, "sglang_version": "0.5.23", "allocator": "installed"}
    return FlightRecorder(path, **{**given, **changes})


def counted(steps: list[DecodeStep]) -> dict[str, int]:
    return {
        "decode_steps": len(steps),
        "crossing_steps": sum(step.crossing for step in steps),
        "tight_steps": sum(step.tight for step in steps),
        "clamped_steps": sum(step.clamped for step in steps),
        "critical_steps": sum(step.critical for step in steps),
        "prefill_batches": sum(step.prefill_batches for step in steps),
        "retractions": sum(step.retractions for step in steps),
        "evicted_pages": sum(step.evicted_pages for step in steps),
        "shortfalls": sum(step.outcome is AllocationOutcome.SHORT for step in steps),
    }


STEPS = st.lists(
    st.fixed_dictionaries(
        {
            "rows": st.tuples(st.integers(1, 300), st.integers(0, 4), st.integers(0, 4), st.integers(0, 4)),
            "tight_prefill_batches": st.lists(st.booleans(), max_size=2),
            "retractions": st.integers(0, 2),
            "evicted_pages": st.lists(st.integers(1, 9), max_size=2),
            "cached": st.integers(0, 2**32 - 1),
            "outcome": st.sampled_from([AllocationOutcome.RETURNED, AllocationOutcome.SHORT, AllocationOutcome.RAISED]),
        }
    ),
    max_size=40,
)


@settings(max_examples=60)
@given(STEPS)
def test_totals_are_the_recount_of_the_steps(tmp_path_factory: pytest.TempPathFactory, steps: list[Any]) -> None:
    path = tmp_path_factory.mktemp("flight") / "flight.bin"
    writer = record(path, capacity=64)
    for step in steps:
        for tight in step["tight_prefill_batches"]:
            writer.count("prefill_batches")
            writer.count("tight_prefill_batches", tight)
        for pages in step["evicted_pages"]:
            writer.count("evicted_pages", pages)
        writer.count("retractions", step["retractions"])
        writer.enter(*step["rows"], step["cached"])
        writer.leave(step["outcome"])
    reader = FlightReader(path)
    read = list(reader.steps())
    assert [(s.batch_size, s.need, s.free, s.trailing) for s in read] == [step["rows"] for step in steps]
    assert [(s.prefill_batches, s.retractions, s.evicted_pages, s.cached, s.outcome) for s in read] == [
        (
            len(step["tight_prefill_batches"]),
            step["retractions"],
            sum(step["evicted_pages"]),
            step["cached"],
            step["outcome"],
        )
        for step in steps
    ]
    assert [s.step for s in read] == list(range(1, len(steps) + 1))
    totals = reader.totals()
    assert {name: getattr(totals, name) for name in counted(read)} == counted(read)
    assert totals.tight_prefill_batches == sum(sum(step["tight_prefill_batches"]) for step in steps)
    assert totals == writer.totals()
    assert totals.last_step_ns == (read[-1].at_ns if read else 0)


@pytest.mark.parametrize(
    ("need", "free", "trailing", "kinds"),
    [
        (0, 0, 0, ""),
        (0, 5, 0, ""),
        (1, 2, 0, "crossing"),
        (1, 2, 3, "crossing clamped"),
        (2, 2, 0, "crossing tight"),
        (2, 2, 1, "crossing tight clamped critical"),
        (3, 2, 1, "crossing clamped"),
    ],
)
def test_tight_clamped_and_critical_are_told_apart(need: int, free: int, trailing: int, kinds: str) -> None:
    step = DecodeStep(1, 0, 9, need, free, trailing, AllocationOutcome.RETURNED)
    assert [kind for kind in ("crossing", "tight", "clamped", "critical") if getattr(step, kind)] == kinds.split()


def test_the_identity_is_that_of_the_writer(tmp_path: Path) -> None:
    before = (time.monotonic_ns(), time.time())
    record(tmp_path / "flight.bin", sglang_version="0.5.23.dev1+" + "x" * 40, rank=3, capacity=8)
    identity = FlightReader(tmp_path / "flight.bin").identity
    assert (identity.page_size, identity.pool_pages, identity.capacity, identity.rank) == (128, 32, 8, 3)
    assert (identity.pid, identity.allocator) == (os.getpid(), "installed")
    assert identity.sglang_version == "0.5.23.dev1+" + "x" * 20  # what there is room for
    assert before[0] <= identity.opened_ns <= time.monotonic_ns()
    assert before[1] <= identity.opened_at <= time.time()


class TestRing:
    def test_the_last_steps_are_kept_and_numbered_on(self, tmp_path: Path) -> None:
        writer = record(tmp_path / "flight.bin", capacity=8)
        reader = FlightReader(tmp_path / "flight.bin")
        for number in range(1, 21):
            writer.enter(number, 1, 1, 0)
        assert [(step.step, step.batch_size) for step in reader.steps()] == [(n, n) for n in range(13, 21)]
        assert [step.step for step in reader.last(3)] == [18, 19, 20]
        assert [step.step for step in reader.last(100)] == list(range(13, 21))
        assert [step.step for step in reader.steps(after=18)] == [19, 20]
        assert reader.totals().decode_steps == 20

    def test_a_reader_that_comes_again_gets_what_is_new(self, tmp_path: Path) -> None:
        writer = record(tmp_path / "flight.bin", capacity=8)
        reader = FlightReader(tmp_path / "flight.bin")
        assert list(reader.steps()) == []
        writer.enter(1, 0, 5, 0)
        (first,) = reader.steps()
        writer.enter(2, 1, 1, 1)
        (second,) = reader.steps(after=first.step)
        assert (second.step, second.critical) == (2, True)

    def test_a_step_is_there_before_the_allocator_came_back(self, tmp_path: Path) -> None:
        writer = record(tmp_path / "flight.bin")
        writer.enter(16, 1, 1, 15)
        (step,) = FlightReader(tmp_path / "flight.bin").last(1)
        assert (step.outcome, step.critical) == (AllocationOutcome.ENTERED, True)

    @pytest.mark.parametrize("place", [0, RECORD.size - 8], ids=["start", "end"])
    def test_a_torn_record_is_skipped(self, tmp_path: Path, place: int) -> None:
        path = tmp_path / "flight.bin"
        writer = record(path, capacity=8)
        for number in range(1, 4):
            writer.enter(number, 0, 1, 0)
        overwrite(path, HEADER_SIZE + RECORD.size + place, struct.pack("<Q", 10))
        assert [step.step for step in FlightReader(path).steps()] == [1, 3]


def overwrite(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


def test_the_last_exception_is_kept(tmp_path: Path) -> None:
    writer = record(tmp_path / "flight.bin")
    reader = FlightReader(tmp_path / "flight.bin")
    assert reader.error() == ""
    writer.raised(ValueError("something longer that happened before"))
    writer.raised(IndexError("index 1 is out of bounds for dimension 0 with size 1"))
    assert reader.error() == "IndexError: index 1 is out of bounds for dimension 0 with size 1"
    assert reader.totals().exceptions == 2


@pytest.mark.parametrize("message", ["é" * 5000, "\0 in it", "\udc80 not to be encoded"])
def test_any_exception_can_be_kept(tmp_path: Path, message: str) -> None:
    writer = record(tmp_path / "flight.bin")
    writer.enter(1, 1, 1, 0)
    writer.raised(RuntimeError(message))
    reader = FlightReader(tmp_path / "flight.bin")
    assert reader.error().startswith("RuntimeError: ")
    assert [step.step for step in reader.steps()] == [1]


WRITER = """
import sys
from service.plugin.flight import AllocationOutcome
from service.plugin.recorder import FlightRecorder
about = {"page_size": 128, "pool_pages": 32, "sglang_version": "x", "allocator": "installed"}
writer = FlightRecorder(sys.argv[1], **about, capacity=64)
print("open", flush=True)
number = 0
while True:
    number += 1
    if number % 3 == 0:
        writer.count("prefill_batches")
    writer.enter(number % 7 + 1, number % 3, number % 5, number % 7)
    writer.leave(AllocationOutcome.RETURNED)
"""


def rows_of(number: int) -> tuple[int, int, int, int]:
    """What the writer process records as its step of that number."""
    return (number % 7 + 1, number % 3, number % 5, number % 7)


@pytest.fixture
def writing(tmp_path: Path) -> Any:
    """A process that records steps as fast as it can into tmp_path / "flight.bin", over and over its small ring."""
    command = [sys.executable, "-c", WRITER, str(tmp_path / "flight.bin")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"open\n"
        yield process
        process.kill()


def test_what_is_read_while_it_is_written_is_whole_and_never_goes_back(tmp_path: Path, writing: Any) -> None:
    reader = FlightReader(tmp_path / "flight.bin")
    before = reader.totals()
    steps = 0
    ends = time.monotonic() + 0.7
    while time.monotonic() < ends:
        now = reader.totals()
        for name in Totals.__dataclass_fields__:
            assert getattr(now, name) >= getattr(before, name), name
        before = now
        for step in reader.steps():
            assert (step.batch_size, step.need, step.free, step.trailing) == rows_of(step.step)
            steps += 1
    assert steps > 0


def test_a_killed_writer_leaves_its_last_steps_and_totals(tmp_path: Path, writing: Any) -> None:
    reader = FlightReader(tmp_path / "flight.bin")
    while reader.totals().decode_steps < 1000:
        time.sleep(0.005)
    writing.send_signal(signal.SIGKILL)
    writing.wait()
    totals = FlightReader(tmp_path / "flight.bin").totals()
    assert totals == reader.totals()
    numbers = range(1, totals.decode_steps + 1)
    critical = sum(n % 3 > 0 and n % 3 == n % 5 and n % 7 > 0 for n in numbers)
    assert abs(totals.critical_steps - critical) <= 1  # it may have died between one number and the next
    last = reader.last(64)
    assert [(step.batch_size, step.need, step.free, step.trailing) for step in last] == [
        rows_of(step.step) for step in last
    ]
    assert len(last) >= 63 and last[-1].step >= totals.decode_steps - 1


def test_a_new_recording_leaves_the_readers_of_the_old_one_alone(tmp_path: Path) -> None:
    old = record(tmp_path / "flight.bin", capacity=8)
    old.enter(1, 1, 1, 1)
    reader = FlightReader(tmp_path / "flight.bin")
    record(tmp_path / "flight.bin", capacity=8)
    assert reader.totals().decode_steps == 1
    assert FlightReader(tmp_path / "flight.bin").totals().decode_steps == 0


class TestRefused:
    @pytest.mark.parametrize("size", [0, 1, HEADER_SIZE - 1])
    def test_a_file_without_a_header(self, tmp_path: Path, size: int) -> None:
        (tmp_path / "flight.bin").write_bytes(b"LASTPAGE"[:size].ljust(size, b"\0"))
        with pytest.raises(NotAFlightFile, match="too short for a flight recording"):
            FlightReader(tmp_path / "flight.bin")

    def test_a_file_of_another_kind(self, tmp_path: Path) -> None:
        (tmp_path / "flight.bin").write_bytes(b"\x7fELF".ljust(2 * HEADER_SIZE, b"\0"))
        with pytest.raises(NotAFlightFile, match="not a flight recording"):
            FlightReader(tmp_path / "flight.bin")

    @pytest.mark.parametrize("version", [1, 3])
    def test_another_format(self, tmp_path: Path, version: int) -> None:
        record(tmp_path / "flight.bin", capacity=8)
        overwrite(tmp_path / "flight.bin", 8, struct.pack("<I", version))
        with pytest.raises(NotAFlightFile, match=f"recording format {version}, this version reads {FORMAT:x}"):
            FlightReader(tmp_path / "flight.bin")

    def test_a_layout_with_another_counter_or_another_field_is_another_format(self) -> None:
        field = StepField("made_up", "Made up.")
        formats = [
            format_of(TOTALS, STEP_FIELDS),
            format_of((*TOTALS, "made_up"), STEP_FIELDS),
            format_of(TOTALS[::-1], STEP_FIELDS),
            format_of(TOTALS, (*STEP_FIELDS, field)),
            format_of(TOTALS, (*STEP_FIELDS, dataclasses.replace(field, wide=True))),
        ]
        assert formats[0] == FORMAT and len(set(formats)) == len(formats)

    def test_a_recording_cut_short(self, tmp_path: Path) -> None:
        record(tmp_path / "flight.bin", capacity=8)
        os.truncate(tmp_path / "flight.bin", HEADER_SIZE + 7 * RECORD.size)
        with pytest.raises(NotAFlightFile, match=f"cut short, {HEADER_SIZE + 7 * RECORD.size} bytes for 8 records"):
            FlightReader(tmp_path / "flight.bin")

    def test_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            FlightReader(tmp_path / "flight.bin")

    @settings(max_examples=100)
    @given(st.lists(st.tuples(st.integers(0, HEADER_SIZE + 8 * RECORD.size - 1), st.integers(0, 255)), max_size=12))
    def test_whatever_stands_in_the_file_is_read_or_refused(
        self, tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]]
    ) -> None:
        path = tmp_path_factory.mktemp("flight") / "flight.bin"
        writer = record(path, capacity=8)
        for number in range(1, 12):
            writer.enter(number, 1, 1, 1)
        for offset, byte in changes:
            overwrite(path, offset, bytes([byte]))
        try:
            reader = FlightReader(path)
        except NotAFlightFile:
            return
        assert len(list(reader.steps())) <= max(8, reader.identity.capacity)
        assert isinstance(reader.error(), str)


NO_ROOM = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
from service.plugin.recorder import FlightRecorder
try:
    FlightRecorder(sys.argv[1], page_size=128, pool_pages=32, sglang_version="x", allocator="installed")
except OSError as error:
    print(type(error).__name__)
"""


def test_a_full_disk_is_noticed_at_opening_and_leaves_nothing(tmp_path: Path) -> None:
    """A mapping of a file that has no room on the disk would be a SIGBUS inside SGLang, at some later step."""
    command = [sys.executable, "-c", NO_ROOM, str(tmp_path / "flight.bin")]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout == "OSError\n"
    assert list(tmp_path.iterdir()) == []


def test_the_file_is_as_its_description_says(tmp_path: Path) -> None:
    """Other programs may read it: offsets, sizes and order are those of `flight_format`'s first lines."""
    writer = record(tmp_path / "flight.bin", capacity=4)
    for number in range(1, 7):
        writer.count("prefill_batches")
        writer.count("retractions", 6)
        writer.count("evicted_pages", 7)
        writer.enter(number, 2, 3, 4, 8)
        writer.leave(AllocationOutcome.SHORT)
    content = (tmp_path / "flight.bin").read_bytes()
    assert (content[:8], len(content)) == (b"LASTPAGE", 4096 + 4 * RECORD.size)
    slot = 4096 + (6 - 1) % 4 * RECORD.size
    assert RECORD.unpack_from(content, slot)[0] == RECORD.unpack_from(content, slot)[-1] == 6
    assert RECORD.unpack_from(content, slot)[2:11] == (6, 2, 3, 4, AllocationOutcome.SHORT, 1, 6, 7, 8)


def test_it_needs_nothing_but_the_standard_library() -> None:
    """It is imported inside SGLang too, and read by the controller, which has no torch."""
    imported = "import sys, service.plugin.recorder, service.plugin.flight_reader"
    program = f"{imported}; print(*sorted({{n.split('.')[0] for n in sys.modules}}))"
    command = [sys.executable, "-S", "-c", program]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert set(names) - set(sys.stdlib_module_names) <= {"service", "__main__", "__mp_main__"}
