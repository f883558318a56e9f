"""Stands in for an engine's process: it forks and misbehaves as told. Arguments: COMMAND [VALUE].

It writes the pids of its children to the file `children`, one a line, before it goes on.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path


def fork(task: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            task()
        finally:
            os._exit(0)
    return pid


def sleep() -> None:
    time.sleep(600)


def ignore_sigterm_and_sleep() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sleep()


def leave_session_and_sleep() -> None:
    os.setsid()
    ignore_sigterm_and_sleep()


def write_children(*pids: int) -> None:
    draft = Path("children.partial")
    draft.write_text("\n".join(map(str, pids)))
    draft.rename("children")


def orphan_without_a_token() -> int:
    """A grandchild in a session of its own, whose parent has ended, and whose environment is empty."""
    readable, writable = os.pipe()

    def middle() -> None:
        def grandchild() -> None:
            os.setsid()
            os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)"], {})

        os.write(writable, str(fork(grandchild)).encode())

    os.waitpid(fork(middle), 0)
    return int(os.read(readable, 64))


def map_shared_memory() -> None:
    with Path(Path("shared").read_text()).open("w+b") as file:
        file.truncate(4096)
        mapped = mmap.mmap(file.fileno(), 4096)
    Path("mapped").touch()
    sleep()
    mapped.close()


def main(command: str, value: str = "") -> None:
    if command == "sleep":
        sleep()
    elif command == "say":
        print(value, flush=True)
        sleep()
    elif command == "ignore_sigterm":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        write_children()
        ignore_sigterm_and_sleep()
    elif command == "family":
        write_children(fork(leave_session_and_sleep), fork(ignore_sigterm_and_sleep), orphan_without_a_token())
        sleep()
    elif command == "worker":
        # As SGLang's launcher: it does not notice at once that its worker is gone, and does not reap it either.
        write_children(fork(sleep))
        sleep()
    elif command == "leave_child_and_exit":
        write_children(fork(leave_session_and_sleep))
        sys.exit(int(value))
    elif command == "signal":
        os.kill(os.getpid(), int(value))
    elif command == "temporary_file":
        descriptor, path = tempfile.mkstemp()
        os.close(descriptor)
        Path("written.partial").write_text(path)
        Path("written.partial").rename("written")
        sleep()
    elif command == "shared_memory":
        # As SGLang's scheduler, in a child, and before the server is ready.
        Path("shared").write_text(f"/dev/shm/sglang_loads_{uuid.uuid4().hex}.shm")
        write_children(fork(map_shared_memory))
        sleep()
    elif command == "environment":
        print("\n".join(f"{name}={value}" for name, value in os.environ.items()))


if __name__ == "__main__":
    main(*sys.argv[1:])
