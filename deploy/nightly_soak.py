#!/usr/bin/env python3
"""Has a controller carry out one run, waits for its end, and exits as `lastpage soak` would.

Usage: nightly_soak.py CONTROLLER_URL [SPEC_FILE]

SPEC_FILE is a run spec in JSON or YAML; without one it is the default soak. Exit codes: 0 pass, 1 fail, 2 the spec was
refused, 3 inconclusive, 4 no engine or no controller, 130 interrupted or cancelled.

Standard library only, so that it runs in any image; YAML needs PyYAML, which the controller's environment has.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

POLL_SECONDS = 5.0
PATIENCE_SECONDS = 300.0
ANSWER_SECONDS = 30.0

_EXIT_CODES = {"pass": 0, "fail": 1, "inconclusive": 3}
_EXIT_CODES_WITHOUT_VERDICT = {"failed_to_start": 4, "interrupted": 130, "cancelled": 130}


def call(url: str, body: Any = None) -> Any:
    """GET, or POST with a body; the JSON that comes back."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as response:
        return json.load(response)


def read_spec(path: Path) -> Any:
    if path.suffix == ".json":
        return json.loads(path.read_text())
    import yaml

    return yaml.safe_load(path.read_text())


def wait(url: str, patience_seconds: float = PATIENCE_SECONDS, poll_seconds: float = POLL_SECONDS) -> dict[str, Any]:
    """The run at that address, once it has ended. A controller that does not answer is borne for a while."""
    answered = time.monotonic()
    while True:
        try:
            run: dict[str, Any] = call(url)
            answered = time.monotonic()
            if run["finished_at"] is not None:
                return run
        except urllib.error.HTTPError:
            raise
        except OSError:
            if time.monotonic() - answered > patience_seconds:
                raise
        time.sleep(poll_seconds)


def exit_code(run: dict[str, Any]) -> int:
    """What the end of a run means for the caller."""
    return _EXIT_CODES_WITHOUT_VERDICT.get(run["status"], _EXIT_CODES.get(run["verdict"] or "", 1))


def main(arguments: list[str], poll_seconds: float = POLL_SECONDS) -> int:
    if not 1 <= len(arguments) <= 2:
        print(__doc__, file=sys.stderr)
        return 2
    controller = arguments[0].rstrip("/")
    try:
        spec = read_spec(Path(arguments[1])) if len(arguments) == 2 else {}
        run = call(f"{controller}/v1/runs", spec or {})
        print(f"run {run['id']} is accepted", flush=True)
        run = wait(f"{controller}/v1/runs/{run['id']}", poll_seconds=poll_seconds)
    except urllib.error.HTTPError as error:
        print(f"{controller} answered {error.code}: {error.read().decode(errors='replace')}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{controller} does not answer: {error}", file=sys.stderr)
        return 4
    print(
        f"{run['status']}, verdict {run['verdict']}: {'; '.join(run['reasons']) or run['detail'] or 'no reason given'}"
    )
    return exit_code(run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
