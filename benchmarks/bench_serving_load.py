"""The load of `client_cost.py` by SGLang's bench_serving: a process that runs one job a line, in turn.

It runs in the engine's environment, so it imports nothing of the project's.
"""

from __future__ import annotations

import contextlib
import io
import json
import resource
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any


def command_line(job: dict[str, Any], results: Path) -> list[str]:
    """bench_serving's own arguments for a job of `client_load.Job`, with `model`, a folder that has a tokenizer."""
    return [
        *("--backend", "sglang", "--base-url", job["url"], "--model", job["model"], "--tokenizer", job["model"]),
        *("--dataset-name", "random-ids", "--tokenize-prompt", "--random-range-ratio", "1"),
        *("--random-input-len", str(job["prompt_tokens"]), "--random-output-len", str(job["new_tokens"])),
        *("--num-prompts", str(job["requests"]), "--max-concurrency", str(job["at_once"])),
        *("--disable-tqdm", "--output-file", str(results)),
        *(() if job["streamed"] else ("--disable-stream",)),
    ]


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def run(job: dict[str, Any], cli_main: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="lastpage-bench-serving-") as folder:
        results = Path(folder) / "results.jsonl"
        sys.argv = ["bench_serving", *command_line(job, results)]
        said = io.StringIO()
        began = cpu_seconds()
        with contextlib.redirect_stdout(said):
            cli_main()
        cost = cpu_seconds() - began
        told = json.loads(results.read_text())
    return {"cpu_seconds": cost, "done": told["completed"], "new_tokens": told["total_output_tokens"]}


def main() -> None:
    answers = sys.stdout
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(sys.stderr):
        from sglang.benchmark.serving import cli_main
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line), cli_main)), file=answers, flush=True)


if __name__ == "__main__":
    main()
