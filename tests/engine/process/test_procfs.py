from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from service.engine.process import procfs
from service.engine.process.ports import PortUnavailable, check_port
from service.engine.process.procfs import ProcessStat
from tests.engine.process.launches import wait_for


def stat(pid: int, parent: int) -> ProcessStat:
    return ProcessStat(pid=pid, state="S", parent=parent, session=1, threads=1, started=1, wait_status=0)


def test_own_process_is_read() -> None:
    own = procfs.read_stat(os.getpid())
    assert own is not None
    assert (own.pid, own.parent, own.session, own.alive) == (os.getpid(), os.getppid(), os.getsid(0), True)


def test_name_with_parentheses_and_spaces_does_not_shift_the_fields(tmp_path: Path) -> None:
    strange = tmp_path / "a) S 1 (b c"
    strange.symlink_to(sys.executable)
    process = subprocess.Popen([str(strange), "-S", "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    found = procfs.read_stat(process.pid)
    process.communicate()
    assert found is not None and found.parent == os.getpid()


@pytest.mark.parametrize(("code", "expected"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9)])
def test_zombie_is_not_alive_and_tells_how_it_ended(code: str, expected: int) -> None:
    process = subprocess.Popen([sys.executable, "-S", "-c", code])
    ended = lambda: (found := procfs.read_stat(process.pid)) is not None and not found.alive  # noqa: E731
    assert wait_for(ended)
    zombie = procfs.read_stat(process.pid)
    process.wait()
    assert zombie is not None and os.waitstatus_to_exitcode(zombie.wait_status) == expected


FIRST_THREAD_ENDS = """
import ctypes, socket, threading, time
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
threading.Thread(target=time.sleep, args=(600,)).start()
time.sleep(0.1)
ctypes.PyDLL(None).pthread_exit(None)
"""


def test_process_whose_first_thread_ended_is_alive_until_the_last_one_has() -> None:
    """It shows as a zombie, and still listens on its port."""
    process = subprocess.Popen([sys.executable, "-S", "-c", FIRST_THREAD_ENDS], stdout=subprocess.PIPE)
    assert process.stdout is not None
    port = int(process.stdout.readline())
    assert wait_for(lambda: (found := procfs.read_stat(process.pid)) is not None and found.state == "Z")
    half_ended = procfs.read_stat(process.pid)
    assert half_ended is not None and half_ended.alive
    with pytest.raises(PortUnavailable):
        check_port(port)
    process.kill()
    process.communicate()
    assert procfs.read_stat(process.pid) is None
    check_port(port)


def test_process_that_is_gone_reads_as_none_and_holds_no_token() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert procfs.read_stat(process.pid) is None
    assert not procfs.holds_token(process.pid, "t")
    assert procfs.title(process.pid) == ""


def test_descendants_are_found_however_deep_and_nobody_else() -> None:
    processes = {pid: stat(pid, parent) for pid, parent in [(2, 1), (3, 2), (4, 3), (5, 1), (6, 5), (7, 4)]}
    assert procfs.descendants(2, processes) == {3, 4, 7}


def test_token_has_to_be_equal_not_only_to_begin_alike() -> None:
    environment = {procfs.TOKEN_VARIABLE: "abc"}
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], env=environment, stdin=subprocess.PIPE)
    try:
        assert wait_for(lambda: procfs.holds_token(process.pid, "abc"))
        assert not procfs.holds_token(process.pid, "ab")
        assert procfs.token_holders("abc") == {process.pid}
    finally:
        process.communicate(b"\n")
