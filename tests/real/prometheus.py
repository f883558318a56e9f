"""A real Prometheus with the shipped configuration, and a stand-in for an npu-exporter."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from service.engine.process.ports import free_port
from tests.deploy.promtool import tool
from tests.engine.process.launches import wait_for
from tests.real.soaks import ROOT

# As an npu-exporter of MindCluster writes them.
_NPU_SERIES = b"""\
npu_chip_info_hbm_used_memory{id="0",model_name="910B3",pod_name="",namespace="",container_name=""} 3381
npu_chip_info_utilization{id="0",model_name="910B3",pod_name="",namespace="",container_name=""} 87
"""


class _NpuExporter(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(_NPU_SERIES)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def npu_exporter() -> Iterator[str]:
    """The address of a stand-in."""
    with HTTPServer(("127.0.0.1", 0), _NpuExporter) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@contextlib.contextmanager
def prometheus(folder: Path, controller: str, exporter: str) -> Iterator[str]:
    """The URL of a Prometheus that is configured as shipped, but for the controller's address.

    Args:
        controller: HOST:PORT, in place of the compose file's `controller:8000`.
        exporter: HOST:PORT of an npu-exporter, put where the configuration looks for such targets.
    """
    for name in ("deploy/prometheus", "dashboards/rules"):
        shutil.copytree(ROOT / name, folder / name)
    config = folder / "deploy/prometheus/prometheus.yml"
    shipped = config.read_text()
    assert shipped.count("controller:8000") == 1
    config.write_text(shipped.replace("controller:8000", controller))
    (config.parent / "targets/npu.yml").write_text(f'- targets: ["{exporter}"]\n')
    url = f"http://127.0.0.1:{free_port()}"
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen(
            [
                tool("prometheus"),
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={url.removeprefix('http://')}",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        assert wait_for(lambda: _ready(url), 30), (folder / "prometheus.log").read_text()
        yield url
    finally:
        process.terminate()
        process.wait(30)


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=2) as response:
            return bool(response.status == 200)
    except OSError:
        return False
