"""The controller's end of the pipes to a warden."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from service.engine.process import warden

_CONTROLLER_ROOT = Path(__file__).resolve().parents[3]


class WardenLink:
    """A running warden. Nothing here blocks: `read` takes in what has come, and the rest tells what is known.

    Attributes:
        engine_pid: the engine's own process; None until it is started.
        scratch: the engine's folder for temporary files, which the warden removes; None when it has none of its own.
        refusal: why the engine could not be started; None while nothing is wrong.
        returncode: the engine's, as `subprocess` gives it; None while it runs.
        survivors: pids of the engine that the warden could not kill.
        ended: the warden is gone.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        """Use `WardenLink.launch`."""
        assert process.stdin is not None and process.stdout is not None
        self.pid = process.pid
        self.engine_pid: int | None = None
        self.scratch: Path | None = None
        self.refusal: str | None = None
        self.returncode: int | None = None
        self.survivors: list[int] = []
        self.ended = False
        self._process = process
        self._orders = process.stdin
        self._reports = process.stdout
        self._unread = b""
        os.set_blocking(self._reports.fileno(), False)

    @classmethod
    def launch(
        cls,
        *,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        log: Path,
        token: str,
        grace_seconds: float,
    ) -> WardenLink:
        """Start a warden, and have it start an engine; see `warden.Order` for the parameters."""
        # No asyncio subprocess: closing an event loop would kill the warden before its work is done.
        with log.open("ab") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", warden.__name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=_CONTROLLER_ROOT,
                env={**os.environ, "PYTHONPATH": str(_CONTROLLER_ROOT)},
                start_new_session=True,
            )
        link = cls(process)
        link._write(
            arguments=list(arguments),
            environment=dict(environment),
            folder=str(folder),
            log=str(log),
            token=token,
            grace=grace_seconds,
        )
        return link

    def stop(self, grace_seconds: float) -> None:
        """Have the warden end the engine, and itself afterwards."""
        if not self.ended:
            self._write(stop=grace_seconds)

    def remove_at_the_end(self, files: Iterable[str]) -> None:
        """Have the warden remove files when the engine is gone."""
        if not self.ended:
            self._write(remove=sorted(files))

    def read(self) -> None:
        """Take in what the warden has reported."""
        while not self.ended:
            try:
                data = os.read(self._reports.fileno(), 65536)
            except BlockingIOError:
                return
            *lines, self._unread = (self._unread + data).split(b"\n")
            for line in lines:
                self._take(json.loads(line))
            self.ended = not data

    def close(self) -> None:
        """Let go of the warden; kill it if it has not ended by itself."""
        if not self.ended:
            self._process.kill()
            self.ended = True
        for pipe in (self._orders, self._reports):
            with contextlib.suppress(OSError):
                pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2)

    def _take(self, report: dict[str, Any]) -> None:
        event = report["event"]
        if event == "started":
            self.engine_pid = report["pid"]
            self.scratch = Path(report["scratch"]) if report["scratch"] else None
        elif event == "refused":
            self.refusal = report["reason"]
        elif event == "exited":
            self.returncode = report["returncode"]
        elif event == "gone":
            self.survivors = report["survivors"]

    def _write(self, **order: object) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._orders.write(json.dumps(order).encode() + b"\n")
            self._orders.flush()
