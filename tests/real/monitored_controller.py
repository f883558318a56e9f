"""A controller that counts a finding on SIGUSR1: `python -m tests.real.monitored_controller HOME`. It prints its port.

An engine in order gives nothing to find, and the alert has to be seen all the same.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from loadgen.checks.findings import FindingKind
from service.api.serving import listen, serve
from service.controller import build_controller
from service.home import Home


def main() -> None:
    controller = build_controller(Home(Path(sys.argv[1])))
    signal.signal(signal.SIGUSR1, lambda *_: controller.metrics.found(FindingKind.WRONG_OUTPUT))
    listener = listen("127.0.0.1", 0)
    print(listener.getsockname()[1], flush=True)
    serve(controller, listener)


if __name__ == "__main__":
    main()
