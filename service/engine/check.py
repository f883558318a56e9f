"""Asks an engine's own interpreter which SGLang it has, whether its allocator has the clamp, and which NPUs it sees."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from service.engine.installation import Engine
from service.engine.overlay import PACKAGE, copy_plugin
from service.files import write_atomically
from service.home import Home
from service.plugin.settings import Profile

DEADLINE_SECONDS = 180.0  # importing SGLang from a cold disk takes half a minute


class NpuCheck(BaseModel):
    """The NPUs that the engine sees."""

    model_config = ConfigDict(frozen=True)

    torch_npu: str | None = Field(default=None, description="torch_npu's version, null when it is not there.")
    available: bool = Field(default=False, description="Whether torch_npu can use a device.")
    count: int = Field(default=0, description="Devices that it sees.")
    name: str | None = Field(default=None, description="The first device's name.")
    problem: str | None = Field(default=None, description="Why torch_npu could not be asked.")


class EngineCheck(BaseModel):
    """What an engine said about itself."""

    model_config = ConfigDict(frozen=True)

    version: str | None = Field(default=None, description="SGLang's version.")
    torch: str | None = Field(default=None, description="torch's version.")
    clamp: bool | None = Field(default=None, description="Whether alloc_decode has the clamp, judged by what it does.")
    npu: NpuCheck = Field(default=NpuCheck())
    problem: str | None = Field(default=None, description="What stands in the way of a run on this engine.")
    simulated: bool = Field(default=False, description="Whether there is no SGLang: it is a model of its scheduler.")

    @property
    def profile(self) -> Profile:
        """What a run on this engine runs on."""
        if self.simulated:
            return Profile.SIMULATED
        return Profile.ASCEND if self.npu.available else Profile.REHEARSAL


def check(engine: Engine, *, home: Home | None = None, deadline_seconds: float = DEADLINE_SECONDS) -> EngineCheck:
    """Check an engine. An answer without a problem is kept, and given again while the installation is unchanged.

    Args:
        home: where answers are kept; the default home when not given.
        deadline_seconds: how long the engine's interpreter may take. It is killed then.

    Returns:
        The answer. What is wrong stands in `problem`; nothing is raised.
    """
    if engine.simulation is not None:
        return EngineCheck(version=engine.simulation.version, clamp=engine.simulation.clamp, simulated=True)
    cached = (home or Home.default()).checks / f"{_digest(str(engine.python), *_devices())}.json"
    answer = _read_cached(cached)
    if answer is not None:
        return answer
    answer, files = _ask(engine, deadline_seconds)
    if answer.problem is None and answer.npu.problem is None:
        _keep(cached, answer, [str(engine.python), *files])
    return answer


def _ask(engine: Engine, deadline_seconds: float) -> tuple[EngineCheck, list[str]]:
    with tempfile.TemporaryDirectory(prefix="lastpage-check-") as name:
        folder = Path(name)
        copy_plugin(folder)
        try:
            code = _run(engine.python, folder, deadline_seconds)
        except subprocess.TimeoutExpired:
            problem = f"{engine.python} gave no answer within {deadline_seconds:g} s"
            return EngineCheck(problem=problem), []
        except OSError as error:
            return EngineCheck(problem=f"{engine.python} could not be started: {error.strerror}"), []
        stdout = (folder / "stdout").read_text(errors="replace")
        stderr = (folder / "stderr").read_text(errors="replace")
    return _parse(engine, code, stdout, stderr)


def _run(python: Path, folder: Path, deadline_seconds: float) -> int:
    """Run the plugin's check; its output goes to files, so that nothing it leaves behind can hold a pipe open."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    with (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("wb") as stderr:
        process = subprocess.Popen(
            [str(python.absolute()), "-m", f"{PACKAGE}.check"],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
        try:
            return process.wait(deadline_seconds)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _parse(engine: Engine, code: int, stdout: str, stderr: str) -> tuple[EngineCheck, list[str]]:
    lines = stdout.strip().splitlines()
    try:
        answer: dict[str, Any] = json.loads(lines[-1])
        files = answer.pop("files")
        return EngineCheck(version=answer.pop("sglang"), **answer), files
    except (IndexError, ValueError, KeyError, AttributeError, TypeError):
        said = (stderr.strip() or stdout.strip() or "it said nothing").splitlines()[-1]
        return EngineCheck(problem=f"{engine.python} ended with code {code} and no answer: {said}"), []


class _CachedCheck(BaseModel):
    """An answer on disk, and the marks of what it was read from."""

    lastpage: str
    marks: dict[str, int]
    answer: EngineCheck


def _read_cached(path: Path) -> EngineCheck | None:
    try:
        cached = _CachedCheck.model_validate_json(path.read_bytes())
        unchanged = cached.marks == _marks(list(cached.marks)) and cached.lastpage == metadata.version("lastpage")
    except (OSError, ValidationError):
        return None
    return cached.answer if unchanged else None


def _keep(path: Path, answer: EngineCheck, files: list[str]) -> None:
    cached = _CachedCheck(lastpage=metadata.version("lastpage"), marks=_marks(files), answer=answer)
    # Not being able to keep an answer costs time only.
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, cached.model_dump_json(indent=2))


def _marks(files: list[str]) -> dict[str, int]:
    return {name: Path(name).stat().st_mtime_ns for name in files}


def _devices() -> list[str]:
    return sorted(path.name for path in Path("/dev").glob("davinci[0-9]*"))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
