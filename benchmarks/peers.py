"""How often each kind of load takes the very last page: the project's scenarios, and SGLang's bench_serving.

    python -m benchmarks.peers        # about ten minutes; writes docs/peers.md

All loads run on the same release, pool and machine, and are counted by the same flight recorder. Finished rows are kept
in a folder, and are not measured again when that folder is given with --keep. What stands there and cannot be taken up
is renamed, never deleted.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
import httpx
from pydantic import TypeAdapter

from benchmarks.arguments import keep_faults, out_faults, refuse, seconds_asked, set_aside
from benchmarks.recorded_server import RecordedServer, recorded_server
from benchmarks.scenarios import OPTIONS, Interrupted, describe_machine, faults_beside_the_pool, run, runnable, spec_of
from loadgen.scenarios import SCENARIOS
from loadgen.scenarios.tight.scenario import Tight
from loadgen.sglang.pages import Pool
from loadgen.sglang.server import EngineNeeds
from service import event_loop
from service.cli.soak import EXIT_INTERRUPTED
from service.engine.installation import Engine
from service.engine.registry import DEFAULT_RELEASE, EngineRegistry
from service.errors import EngineError
from service.execution.recording import Recording
from service.files import read_text, write_atomically
from service.home import Home
from service.spec.faults import Fault, InvalidSpec

PAGE = Path(__file__).parents[1] / "docs" / "peers.md"
POOL = Pool(128, 32)
SCENARIOS_SHOWN = ("tight", "mixed", "burst")
# Prompts of 200 to 400 tokens and answers of 265 to 530, evenly: about 300 and 400, as people benchmark.
BENCH_SERVING = (
    *("--backend", "sglang", "--dataset-name", "random-ids", "--tokenize-prompt"),
    *("--random-input-len", "400", "--random-output-len", "530", "--random-range-ratio", "0.5"),
    *("--num-prompts", "100", "--max-concurrency", "32", "--disable-tqdm"),
)
WITHOUT_IGNORE_EOS = "--disable-ignore-eos"
_MOST_SECONDS = 900.0
_DEFAULT_LAUNCH = "SGLang's defaults"

_HEADING = "# Compared with SGLang's own load generator"
_WHAT = (
    "How many of 1,000 decode steps are *critical*: they take the very last page, with trailing rows. "
    "The words are in the [README](../README.md)."
)
_BENCH_SERVING = "bench_serving sends 100 requests, 32 of them at once, of about 300 tokens with answers of about 400:"
_LAUNCHES = (
    "By default it asks with `ignore_eos`; such requests SGLang admits by a rule that does not over-commit. It is "
    "shown with SGLang's default scheduling, and with the very launch that `tight` uses, where only the load differs."
)


@dataclass(frozen=True)
class Row:
    """What one load did to the pool.

    Attributes:
        load: what made it.
        launch: arguments and environment variables that the server was launched with for it.
    """

    load: str
    launch: str
    decode_steps: int
    crossing_steps: int
    tight_steps: int
    critical_steps: int
    retractions: int

    @property
    def critical_per_thousand(self) -> float:
        """Critical steps in 1,000 decode steps."""
        return 1000 * self.critical_steps / self.decode_steps if self.decode_steps else 0.0


def page(rows: Sequence[Row], engine: str, machine: str, date: str) -> str:
    """The whole page."""
    columns = (
        "load",
        "decode steps",
        "crossing",
        "tight",
        "critical",
        "**critical in 1,000**",
        "retractions",
        "launch",
    )
    lines = [columns, ("---", *["---:"] * 6, "---")]
    lines += [
        (
            row.load,
            *(f"{count:,}" for count in (row.decode_steps, row.crossing_steps, row.tight_steps, row.critical_steps)),
            f"**{row.critical_per_thousand:,.1f}**",
            f"{row.retractions:,}",
            row.launch,
        )
        for row in rows
    ]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    made = (
        f"Made by `make peers` on SGLang {engine}, a plain CPU (rehearsal), {POOL.pages} pages of {POOL.page_size}, "
        f"{machine}, {date}. The same flight recorder counts for all of them."
    )
    command = " ".join(("    python -m sglang.bench_serving", *BENCH_SERVING))
    return "\n\n".join([_HEADING, _WHAT, made, table, _BENCH_SERVING, command, _LAUNCHES]) + "\n"


def launch_text(needs: EngineNeeds) -> str:
    """A launch as a table shows it."""
    words = [f"{name}={value}" for name, value in needs.environment.items()] + [shlex.join(needs.arguments)]
    text = " ".join(filter(None, words))
    return f"`{text}`" if text else _DEFAULT_LAUNCH


def row_of(load: str, launch: str, recording: Recording) -> Row:
    """What a recording has counted."""
    totals = recording.totals()
    return Row(
        load,
        launch,
        totals.decode_steps,
        totals.crossing_steps,
        totals.tight_steps,
        totals.critical_steps,
        totals.retractions,
    )


async def bench_serving(engine: Engine, server: RecordedServer, launch: str, flags: Sequence[str]) -> Row:
    """Run bench_serving on a server; what it did to the pool.

    Raises:
        EngineError: it failed, or took too long.
    """
    async with httpx.AsyncClient(base_url=server.plan.url, trust_env=False) as client:
        # The prompts are the same each time: they shall not be found in the prefix cache.
        (await client.post("/flush_cache")).raise_for_status()
    recording = Recording(server.plan.flight)
    command = [
        *(str(engine.python), "-m", "sglang.bench_serving", "--base-url", server.plan.url, *BENCH_SERVING, *flags),
        *("--model", str(server.model), "--tokenizer", str(server.model)),
        *("--output-file", str(server.plan.folder / "bench_serving.jsonl")),
    ]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "NO_PROXY": "127.0.0.1"}
    try:
        with anyio.fail_after(_MOST_SECONDS):
            await anyio.run_process(command, env=environment, stderr=subprocess.STDOUT)
    except subprocess.CalledProcessError as error:
        raise EngineError(f"bench_serving failed: {error.output.decode(errors='replace')[-2000:]}") from error
    except TimeoutError as error:
        raise EngineError(f"bench_serving took more than {_MOST_SECONDS:g} s") from error
    return row_of(" ".join(("bench_serving", *(f"`{flag}`" for flag in flags))), launch, recording)


async def scenario(name: str, engine: str, seconds: float, folder: Path) -> Row:
    """Run a scenario as `lastpage soak` does.

    Raises:
        EngineError: it was not run to its end.
        Interrupted: by a signal.
    """
    report = await run(spec_of(name, POOL.pages, seconds, engine), folder)
    if report["status"] != "finished":
        raise EngineError(f"{name}: {report['status']}: {report['detail']}")
    measures = report["measures"]
    kind = SCENARIOS[name]
    options = kind.Options.model_validate(dict(OPTIONS.get(name, {})))
    counts = {field.name: measures[field.name] for field in dataclasses.fields(Row) if field.type == "int"}
    return Row(f"lastpage `{name}`", launch_text(kind.engine_needs(POOL, options)), **counts)


_ROW = TypeAdapter(Row)


class Measured:
    """The rows so far, each in a file of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: list[Row] = []
        folder.mkdir(parents=True, exist_ok=True)

    def known(self, key: str) -> bool:
        """Whether a row was measured earlier; it is then taken up."""
        try:
            self.rows.append(_ROW.validate_python(json.loads(read_text(self._path(key)))))
        except (OSError, ValueError, RecursionError):
            return False
        return True

    def add(self, key: str, row: Row) -> None:
        set_aside(self._path(key))
        self._path(key).write_text(json.dumps(dataclasses.asdict(row)))
        self.rows.append(row)
        print(f"{row.load}: {row.critical_per_thousand:.1f} critical steps in 1,000", file=sys.stderr, flush=True)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"


async def measure(engine: Engine, seconds: float, measured: Measured) -> None:
    """Measure every row that is not there yet."""
    over_committing = Tight.engine_needs(POOL, Tight.Options())
    for launch_name, needs in (("default", EngineNeeds()), ("over-committing", over_committing)):
        loads = {f"bench_serving-{launch_name}{''.join(flags)}": flags for flags in ((), (WITHOUT_IGNORE_EOS,))}
        missing = {key: flags for key, flags in loads.items() if not measured.known(key)}
        if not missing:
            continue
        folder = measured.folder / f"server-{launch_name}"
        set_aside(folder)
        folder.mkdir(exist_ok=True)
        async with recorded_server(
            engine,
            folder,
            page_size=POOL.page_size,
            pool_pages=POOL.pages,
            arguments=needs.arguments,
            environment=needs.environment,
        ) as server:
            for key, flags in missing.items():
                measured.add(key, await bench_serving(engine, server, launch_text(needs), flags))
    for name in SCENARIOS_SHOWN:
        if name in SCENARIOS and runnable(SCENARIOS[name]) and not measured.known(name):
            measured.add(name, await scenario(name, engine.name, seconds, measured.folder / name))


def faults_before(duration: str, engine: str, out: Path) -> list[Fault]:
    """What is wrong with what was asked for."""
    faults = out_faults(out)
    try:
        seconds = seconds_asked(duration)
    except InvalidSpec as error:
        return [*faults, *error.faults]
    for name in SCENARIOS_SHOWN:
        try:
            beside, of_the_pool = faults_beside_the_pool(spec_of(name, POOL.pages, seconds, engine))
            faults += [*beside, *of_the_pool]
        except InvalidSpec as error:
            faults += error.faults
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description="Critical steps of each load.")
    parser.add_argument("--engine", default=DEFAULT_RELEASE, help="engine by name (default: %(default)s)")
    parser.add_argument("--duration", default="60s", help="of each scenario (default: %(default)s)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="take up where an earlier call was interrupted")
    parser.add_argument("--out", type=Path, default=PAGE, help="file to write (default: docs/peers.md)")
    asked = parser.parse_args()
    kept = (asked.keep or Home.default().runs / f"peers-{time.strftime('%Y%m%d-%H%M%S')}").absolute()
    if faults := faults_before(asked.duration, asked.engine, asked.out) or keep_faults(kept):
        return refuse("peers", faults)
    print(f"rows are kept in {kept}; if interrupted, go on with --keep {kept}", file=sys.stderr)
    try:
        seconds = seconds_asked(asked.duration)
        engine = EngineRegistry(Home.default()).get(asked.engine)
        measured = Measured(kept)
        event_loop.run(measure, engine, seconds, measured)
    except (Interrupted, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except InvalidSpec as error:
        return refuse("peers", error.faults)
    except EngineError as error:
        print(f"peers: {error}", file=sys.stderr)
        return 1
    date = time.strftime("%Y-%m-%d", time.gmtime())
    write_atomically(asked.out, page(measured.rows, engine.version or engine.name, describe_machine(), date))
    print(f"wrote {asked.out}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
