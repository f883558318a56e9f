"""The rehearsal as its container confines it: a read-only root, a /tmp that nothing can be run from, no capability, and
a user that is not root. It takes no Docker engine: the kernel's own mount namespaces do the same.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from service.engine.registry import EngineRegistry
from service.home import Home
from tests.real.leftovers import MARK_VARIABLE
from tests.real.soaks import ROOT

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

RELEASE = "0.5.23"
STATE = "/var/lib/lastpage"  # as in deploy/rehearsal.Dockerfile, and the one place in which it may write

# Mounts the folders of $SHOWN (one a line) anew where a folder above them is closed to the user, and confines.
CONFINE = """
set -eu
mount --make-rprivate /
mount -t tmpfs tmpfs /mnt
number=0
while read -r folder; do
    number=$((number + 1))
    mkdir /mnt/$number && mount --bind "$folder" /mnt/$number
done <<< "$SHOWN"
mkdir /mnt/state && mount --bind "$STATE_FOLDER" /mnt/state
for closed in $CLOSED; do mount -t tmpfs -o mode=755 tmpfs "$closed"; done
mount -t tmpfs -o mode=755 tmpfs /var/lib
mount -t tmpfs -o noexec,nosuid,nodev,mode=1777 tmpfs /tmp
number=0
while read -r folder; do
    number=$((number + 1))
    mkdir -p "$folder" && mount --bind -o ro /mnt/$number "$folder" && mount -o remount,bind,ro "$folder"
done <<< "$SHOWN"
mkdir /var/lib/lastpage && mount --bind /mnt/state /var/lib/lastpage
mount -o remount,bind,ro /
for closed in $CLOSED; do mount -o remount,ro "$closed"; done
exec setpriv --reuid 1000 --regid 1000 --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs -- "$@"
"""

SOAK = """
set -eu
cd /var/lib/lastpage
grep -qE '^[^ ]+ / [^ ]+ ro[, ]' /proc/self/mounts && grep -qE '^[^ ]+ /tmp [^ ]+ [^ ]*noexec' /proc/self/mounts
grep -q '^CapBnd:[[:space:]]*0*$' /proc/self/status && [ "$(id -u)" = 1000 ]
"$PYTHON" -m service.cli.main engine add "$RELEASE" --python "$ENGINE" --no-check
exec "$PYTHON" -m service.cli.main soak --engine "$RELEASE" --duration 5 --min-critical 50 --out /var/lib/lastpage/out
"""


def closed_folders(folders: list[Path]) -> list[Path]:
    """The topmost folder above each that other users cannot enter."""
    tops = [next((p for p in reversed(folder.parents) if not p.stat().st_mode & 0o001), None) for folder in folders]
    return sorted({top for top in tops if top is not None})


@pytest.mark.skipif(
    os.geteuid() != 0 or not (shutil.which("unshare") and shutil.which("setpriv")),
    reason="mount namespaces take root, and util-linux",
)
def test_the_rehearsal_runs_confined_as_its_container_confines_it(tmp_path: Path) -> None:
    engine = EngineRegistry(Home.default()).get(RELEASE).python
    # Where a virtual environment's interpreter really is, that of the engine included.
    shown = [Path(sys.prefix), Path(sys.base_prefix), ROOT, engine.parents[1], engine.resolve().parents[1]]
    if subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        pytest.skip("this machine allows no mount namespaces")
    state = tmp_path / "state"
    state.mkdir()
    os.chown(state, 1000, 1000)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": STATE,
        "LASTPAGE_HOME": STATE,
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHON": sys.executable,
        "ENGINE": str(engine),
        "RELEASE": RELEASE,
        "ROOT": str(ROOT),
        "SHOWN": "\n".join(dict.fromkeys(map(str, shown))),
        "CLOSED": " ".join(map(str, closed_folders(shown))),
        "STATE_FOLDER": str(state),
        MARK_VARIABLE: os.environ[MARK_VARIABLE],
    }
    command = ["unshare", "--mount", "bash", "-c", CONFINE, "confine", "bash", "-c", SOAK]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    report = json.loads((state / "out" / "report.json").read_text())
    assert report["verdict"] == "pass" and report["measures"]["critical_steps"] >= 50
