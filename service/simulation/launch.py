"""What a simulated engine is told: SGLang's command line, the plugin's settings, and settings of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from loadgen.clock import Clock
from loadgen.sglang.pages import Pool
from loadgen.sglang.releases import rules_for
from loadgen.sglang.server import ServerConfiguration
from service.engine.process.arguments import options_given
from service.engine.simulated import SIMULATION_VARIABLE, Simulation
from service.execution.server_configuration import server_configuration
from service.plugin.settings import Settings

_OPTIONS = ("--model-path", "--served-model-name", "--host", "--port", "--page-size", "--max-total-tokens")
_DEFAULT_POOL_TOKENS = 4096 * 128
_DEFAULT_VOCABULARY = 256


@dataclass(frozen=True)
class Launch:
    """One launch of a simulated engine.

    Attributes:
        name: the served model name.
        server: what the arguments say of the server, with the rules of the release that is simulated.
        vocabulary: token ids are below this.
    """

    name: str
    host: str
    port: int
    server: ServerConfiguration
    vocabulary: int
    settings: Settings
    simulation: Simulation

    @property
    def clock(self) -> Clock:
        return Clock(self.simulation.time_scale)

    @classmethod
    def read(cls, arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> Launch:
        """
        Raises:
            KeyError: an option or a variable is missing.
            ValueError: one has a value that is not allowed.
        """
        given = {name: value or "" for name, value in options_given(arguments, _OPTIONS).items()}
        simulation = Simulation.from_json(environment.get(SIMULATION_VARIABLE, "{}"))
        page_size = int(given["--page-size"])
        tokens = int(given.get("--max-total-tokens", _DEFAULT_POOL_TOKENS))
        pool = Pool(page_size, tokens // page_size)
        return cls(
            name=given["--served-model-name"],
            host=given["--host"],
            port=int(given["--port"]),
            server=server_configuration(pool, arguments, rules_for(simulation.release).rules),
            vocabulary=_vocabulary(Path(given["--model-path"])),
            settings=Settings.from_environment(environment),
            simulation=simulation,
        )


def _vocabulary(model: Path) -> int:
    try:
        return int(json.loads((model / "config.json").read_text())["vocab_size"])
    except (OSError, ValueError, KeyError):
        return _DEFAULT_VOCABULARY
