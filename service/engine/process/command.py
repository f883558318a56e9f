"""What to launch: an engine's argument list and environment, decided in one place and without side effects."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from loadgen.clock import REAL, Clock
from service.engine.process.arguments import layered
from service.engine.process.ports import HOST
from service.engine.process.procfs import TOKEN_VARIABLE
from service.engine.simulated import Simulation
from service.plugin.entry import PLATFORM_NAME, PLUGIN_NAME
from service.plugin.settings import Allocator, Profile, Settings

DEFAULT_PAGE_SIZE = 128
FLIGHT_FILE = "flight.bin"
LOG_FILE = "engine.log"
DEVICE_LOG_FOLDER = "plog"

# Both releases that this was built on warn about it in favour of `sglang serve`, and both take it. `sglang serve` first
# guesses the kind of model by its name, which is one more thing to go wrong.
_SERVER_MODULE = "sglang.launch_server"
_SIMULATED_MODULE = "service.simulation"
_CONTROLLER_ROOT = Path(__file__).resolve().parents[3]

# SGLang looks for a SIGTERM every 5 s, then has its workers let go of the device: worth the wait where there is one.
_GRACE_SECONDS = {Profile.ASCEND: 15.0, Profile.REHEARSAL: 0.5, Profile.SIMULATED: 0.0}


@dataclass(frozen=True)
class LaunchPlan:
    """Everything that is needed to launch one engine, and to know it again.

    Attributes:
        argv: the argument list; no shell is involved.
        environment: the engine's whole environment.
        port: TCP port on 127.0.0.1.
        served_model_name: unlike that of any other launch, so that another server on the port is not taken for ours.
        token: value of LASTPAGE_TOKEN in the environment, by which every process of the engine is found.
        folder: the run's folder, which is the engine's working directory.
        flight: the flight recorder's file.
        log: file for the engine's stdout and stderr.
        page_size: tokens a page.
        pool_pages: pages in the pool; None leaves it to SGLang.
        grace_seconds: between SIGTERM and SIGKILL, when the engine is stopped in order.
        clock: the clock of a run on it: the machine's, but for a simulated engine.
    """

    argv: tuple[str, ...]
    environment: dict[str, str]
    port: int
    served_model_name: str
    token: str
    folder: Path
    flight: Path
    log: Path
    profile: Profile
    allocator: Allocator
    page_size: int
    pool_pages: int | None
    grace_seconds: float
    clock: Clock = REAL

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://{HOST}:{self.port}"


def plan_launch(
    *,
    python: Path,
    profile: Profile,
    model: Path,
    tiny_model: bool,
    folder: Path,
    overlay: Path,
    port: int,
    seed: int,
    page_size: int = DEFAULT_PAGE_SIZE,
    pool_pages: int | None = None,
    allocator: Allocator = Allocator.INSTALLED,
    scenario_arguments: Sequence[str] = (),
    scenario_environment: Mapping[str, str] | None = None,
    user_arguments: Sequence[str] = (),
    inherited: Mapping[str, str] | None = None,
    simulation: Simulation | None = None,
) -> LaunchPlan:
    """Plan the launch of an engine.

    Args:
        python: the engine's interpreter.
        model: folder of the model.
        tiny_model: the model is the project's own, with no tokenizer at work.
        overlay: the folder that `write_overlay` wrote.
        scenario_arguments: what the scenario needs; an option here replaces the profile's default.
        user_arguments: what the user added; replaces the scenario's. See `refused_arguments` for what cannot be here.
        inherited: the environment to start from; this process's own when None.
        simulation: how the engine is simulated; None for a real one.
    """
    token = secrets.token_hex(16)
    settings = Settings(flight=str(folder / FLIGHT_FILE), allocator=allocator, profile=profile)
    served_model_name = f"lastpage-{token[:12]}"
    owned = [
        *("--model-path", str(model)),
        *("--served-model-name", served_model_name),
        *("--host", HOST),
        *("--port", str(port)),
        *("--device", "npu" if profile is Profile.ASCEND else "cpu"),
        *("--attention-backend", "ascend" if profile is Profile.ASCEND else "torch_native"),
        *("--page-size", str(page_size)),
        *("--random-seed", str(seed)),
        "--enable-metrics",
    ]
    if pool_pages is not None:
        owned += ["--max-total-tokens", str(pool_pages * page_size)]
    if tiny_model:
        owned += ["--load-format", "safetensors", "--skip-tokenizer-init"]
    arguments = layered(owned, _defaults(profile, tiny_model), scenario_arguments, user_arguments)
    return LaunchPlan(
        argv=(str(python), "-m", _SERVER_MODULE if simulation is None else _SIMULATED_MODULE, *arguments),
        environment={
            **_base_environment(dict(os.environ if inherited is None else inherited), python, overlay, settings),
            **_environment_of(profile, folder),
            **({"HF_HUB_OFFLINE": "1"} if tiny_model else {}),
            **(scenario_environment or {}),
            **(simulation.environment if simulation is not None else {}),
            TOKEN_VARIABLE: token,
        },
        port=port,
        served_model_name=served_model_name,
        token=token,
        folder=folder,
        flight=folder / FLIGHT_FILE,
        log=folder / LOG_FILE,
        profile=profile,
        allocator=allocator,
        page_size=page_size,
        pool_pages=pool_pages,
        grace_seconds=_GRACE_SECONDS[profile],
        clock=REAL if simulation is None else Clock(simulation.time_scale),
    )


def _defaults(profile: Profile, tiny_model: bool) -> list[str]:
    defaults = [
        # A line for each request would push everything else out of the log's tail.
        *("--log-level-http", "warning"),
        # Readiness asks for a completion itself. A second one, at no known time, would take a page from the load.
        "--skip-server-warmup",
    ]
    if profile is Profile.REHEARSAL:
        # SGLang's choice is made for accelerators: with a large --chunked-prefill-size it falls below zero on a CPU.
        defaults += ["--mem-fraction-static", "0.3"]
        if tiny_model:
            # SGLang would make float16 of it, in which what a row computes depends on the rows beside it.
            defaults += ["--dtype", "float32"]
    return defaults


def _base_environment(inherited: dict[str, str], python: Path, overlay: Path, settings: Settings) -> dict[str, str]:
    """The user's environment, with what the plugin and our own bookkeeping need."""
    environment = {name: value for name, value in inherited.items() if name not in _CONTROLLERS_OWN}
    environment |= settings.environment()
    environment["PYTHONPATH"] = _joined(os.pathsep, str(overlay), inherited.get("PYTHONPATH"))
    environment["PATH"] = _joined(os.pathsep, str(python.parent), inherited.get("PATH"))
    # What the engine prints just before it dies has to be in the log.
    environment["PYTHONUNBUFFERED"] = "1"
    environment["PYTHONFAULTHANDLER"] = "1"
    # SGLang renames its processes with setproctitle, which overwrites the environment shown in /proc, and with it the
    # token by which we find them, unless told otherwise.
    environment["SPT_NOENV"] = "1"
    # SGLang asks itself over HTTP, by clients that obey the proxy variables.
    for name in ("no_proxy", "NO_PROXY"):
        environment[name] = _joined(",", inherited.get(name), HOST, "localhost")
    # When set, SGLang loads only the plugins it names.
    if environment.get("SGLANG_PLUGINS"):
        environment["SGLANG_PLUGINS"] = _joined(",", environment["SGLANG_PLUGINS"], PLUGIN_NAME, PLATFORM_NAME)
    return environment


# They point at the controller's own Python.
_CONTROLLERS_OWN = frozenset({"PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__", TOKEN_VARIABLE})


def _joined(separator: str, *parts: str | None) -> str:
    return separator.join(part for part in parts if part)


def _environment_of(profile: Profile, folder: Path) -> dict[str, str]:
    if profile is Profile.ASCEND:
        return _ascend_environment(folder)
    if profile is Profile.REHEARSAL:
        return _rehearsal_environment()
    # It is the controller's own code that runs there.
    return {"PYTHONPATH": str(_CONTROLLER_ROOT)}


def _rehearsal_environment() -> dict[str, str]:
    return {
        "SGLANG_PLATFORM": PLATFORM_NAME,
        # That path asks for the CPU's AMX kernels. The rehearsal platform is a plain CPU.
        "SGLANG_USE_CPU_ENGINE": "0",
        # With more threads than cores for the tiny model, two busy processes slow each other down tenfold.
        "OMP_NUM_THREADS": "1",
    }


def _ascend_environment(folder: Path) -> dict[str, str]:
    """What keeps a crash's evidence whole; it decides what is written where, not how anything is computed.

    Nothing that changes timing or memory (ASCEND_LAUNCH_BLOCKING, PYTORCH_NPU_ALLOC_CONF, ...) is set: SGLang's guide
    for Ascend leaves those to the machine's owner, whose environment is kept.
    """
    return {
        # torch_npu's "Environment Variable Reference": 1 moves CANN's call stack and the error codes out of the
        # message, and they are what a crash is classified by.
        "TORCH_NPU_COMPACT_ERROR_OUTPUT": "0",
        # CANN's "Environment Variables": where the logs of its runtime go, by default $HOME/ascend/log, shared by all.
        "ASCEND_PROCESS_LOG_PATH": str(folder / DEVICE_LOG_FOLDER),
    }
