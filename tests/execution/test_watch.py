"""Claims about the watch: each way in which an engine can be gone is noticed, and a healthy one is left alone."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from service.engine.process.death import EngineDeath
from service.engine.process.ports import free_port
from service.execution.recording import Recording
from service.execution.watch import Alarm, Sign, Watch
from service.plugin.recorder import FlightRecorder

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(20), pytest.mark.processes]

HANG_SECONDS = 0.4
LATE_NS = 8e9  # a busy machine is no fault of the code
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class EngineStandIn:
    """What the watch asks of an engine's process."""

    def __init__(self, port: int) -> None:
        self.plan = SimpleNamespace(url=f"http://127.0.0.1:{port}")
        self.died: EngineDeath | None = None

    def death(self) -> EngineDeath | None:
        return self.died


@contextlib.asynccontextmanager
async def port(*, answering: bool = True, after_seconds: float = 0.0) -> AsyncIterator[int]:
    """A port on which every request is answered, or none."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                await anyio.sleep(after_seconds)
                if answering:
                    writer.write(ANSWER)
                    await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        number: int = server.sockets[0].getsockname()[1]
        yield number


def one_open() -> int:
    return 1


def none_open() -> int:
    return 0


async def alarm_of(
    engine: Any, recording: Recording | None, open_requests: Callable[[], int] = one_open, seconds: float = 15
) -> Alarm | None:
    """The alarm, or None when none was raised for so long."""
    watch = Watch(engine, recording, open_requests, HANG_SECONDS)
    with anyio.move_on_after(seconds):
        return await watch.alarm()
    return None


async def test_a_death_is_noticed_at_once_with_how_it_was(recording: Recording) -> None:
    async with port() as number, anyio.create_task_group() as group:
        engine = EngineStandIn(number)

        async def die() -> None:
            await anyio.sleep(0.1)
            engine.died = EngineDeath("scheduler", 7, None, 9, time.monotonic_ns())

        group.start_soon(die)
        alarm = await alarm_of(engine, recording, none_open)
    assert alarm is not None and alarm.sign is Sign.DEATH
    assert alarm.death is engine.died and alarm.since_ns == engine.died.noticed_ns
    assert alarm.noticed_ns - alarm.since_ns < LATE_NS


async def test_an_exception_in_the_allocator_is_noticed_before_the_death_that_follows(
    recording: Recording, writer: FlightRecorder
) -> None:
    async with port() as number:
        engine = EngineStandIn(number)
        engine.died = EngineDeath("scheduler", 7, 1, None, time.monotonic_ns())
        writer.enter(16, 1, 1, 15)
        writer.raised(IndexError("index 1 is out of bounds"))
        alarm = await alarm_of(engine, recording)
    assert alarm is not None and alarm.sign is Sign.EXCEPTION
    assert alarm.since_ns == recording.totals().last_step_ns


async def test_no_step_while_requests_are_open_is_a_hang(recording: Recording) -> None:
    async with port() as number:
        alarm = await alarm_of(EngineStandIn(number), recording)
    assert alarm is not None and alarm.sign is Sign.HANG
    assert HANG_SECONDS * 1e9 <= alarm.noticed_ns - alarm.since_ns < LATE_NS


async def test_no_step_while_nothing_is_asked_is_none(recording: Recording) -> None:
    async with port() as number:
        assert await alarm_of(EngineStandIn(number), recording, none_open, seconds=2 * HANG_SECONDS) is None


@pytest.mark.parametrize("work", ["decode", "prefill"])
async def test_an_engine_at_work_does_not_hang(recording: Recording, writer: FlightRecorder, work: str) -> None:
    def open_requests() -> int:
        """Asked at each look, so that there is work between any two."""
        writer.enter(1, 0, 9, 0) if work == "decode" else writer.count("prefill_batches")
        return 1

    async with port() as number:
        assert await alarm_of(EngineStandIn(number), recording, open_requests, seconds=2 * HANG_SECONDS) is None


async def test_nobody_on_the_port_is_silence_told_after_a_moment(recording: Recording) -> None:
    alarm = await alarm_of(EngineStandIn(free_port()), recording, none_open)
    assert alarm is not None and alarm.sign is Sign.SILENCE
    assert alarm.noticed_ns - alarm.since_ns < LATE_NS


async def test_a_death_says_more_than_the_port_that_it_closes(recording: Recording) -> None:
    engine = EngineStandIn(free_port())
    async with anyio.create_task_group() as group:

        async def die() -> None:
            await anyio.sleep(0.2)
            engine.died = EngineDeath("engine", 7, 1, None, time.monotonic_ns())

        group.start_soon(die)
        alarm = await alarm_of(engine, recording, none_open)
    assert alarm is not None and alarm.sign is Sign.DEATH


async def test_a_port_that_never_answers_is_silence_after_the_limit(recording: Recording) -> None:
    async with port(answering=False) as number:
        alarm = await alarm_of(EngineStandIn(number), recording, none_open)
    assert alarm is not None and alarm.sign is Sign.SILENCE
    assert HANG_SECONDS * 1e9 <= alarm.noticed_ns - alarm.since_ns < LATE_NS


def pausing(work: Callable[[], object], at_look: int) -> Callable[[], int]:
    """What tells of an open request at each look, and stops this process at one of them for longer than is borne."""
    looks = 0

    def open_requests() -> int:
        nonlocal looks
        looks += 1
        if looks == at_look:
            time.sleep(1.5 * HANG_SECONDS)
        elif looks > at_look:
            work()
        return 1

    return open_requests


async def test_a_pause_of_the_machine_is_no_hang(recording: Recording, writer: FlightRecorder) -> None:
    """Whoever watches stood still with the engine, and looks before the engine has gone on."""
    async with port() as number:
        watched = pausing(lambda: writer.enter(1, 0, 9, 0), at_look=2)
        assert await alarm_of(EngineStandIn(number), recording, watched, seconds=3 * HANG_SECONDS) is None


async def test_a_pause_of_the_machine_is_no_silence(recording: Recording, writer: FlightRecorder) -> None:
    """A call is on its way when it begins, and its time is over when it ends."""
    async with port(answering=True, after_seconds=0.2) as number:
        watched = pausing(lambda: writer.enter(1, 0, 9, 0), at_look=5)
        assert await alarm_of(EngineStandIn(number), recording, watched, seconds=4 * HANG_SECONDS) is None


async def test_without_a_recording_processes_and_port_are_watched() -> None:
    async with port() as number:
        assert await alarm_of(EngineStandIn(number), None, seconds=2 * HANG_SECONDS) is None
        engine = EngineStandIn(number)
        engine.died = EngineDeath("engine", 7, 0, None, time.monotonic_ns())
        alarm = await alarm_of(engine, None)
    assert alarm is not None and alarm.sign is Sign.DEATH


async def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch, recording: Recording) -> None:
    monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{free_port()}")
    async with port() as number:
        assert await alarm_of(EngineStandIn(number), recording, none_open, seconds=0.7) is None
