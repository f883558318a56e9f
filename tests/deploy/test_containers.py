"""Claims about the compose file, the Dockerfiles and what they start, as far as they can be checked without an engine.

The Compose specification's schema is the one that check-jsonschema brings (vendor.compose-spec); hadolint is a package.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.dashboards.boards import ROOT

COMPOSE = ROOT / "docker-compose.yml"
COMPOSE_A3 = ROOT / "deploy/compose.a3.yml"
DOCKERFILES = sorted((ROOT / "deploy").glob("*.Dockerfile"))
PROFILES = ("rehearsal", "ascend")
# What SGLang's guide for Ascend maps into a container, beside /dev/davinci0 and its like.
ASCEND_DEVICES = {"/dev/davinci_manager", "/dev/hisi_hdc", "/dev/devmm_svm"}
ASCEND_MOUNTS = {
    "/usr/local/sbin",
    "/usr/local/Ascend/driver",
    "/usr/local/Ascend/firmware",
    "/etc/ascend_install.info",
    "/var/queue_schedule",
}


def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]
    return found


def run(*arguments: str) -> str:
    answer = subprocess.run(arguments, capture_output=True, text=True, cwd=ROOT)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


def test_compose_files_are_of_the_specifications_schema() -> None:
    run(
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.compose-spec",
        str(COMPOSE),
        str(COMPOSE_A3),
    )


@pytest.mark.parametrize("files", [[COMPOSE], [COMPOSE, COMPOSE_A3]], ids=["a2", "a3"])
@pytest.mark.parametrize("profile", PROFILES)
def test_compose_client_reads_the_files(profile: str, files: list[Path]) -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True).returncode:
        pytest.skip("no docker client with the compose plugin here; the schema was checked all the same")
    named = [word for file in files for word in ("--file", str(file))]
    run(docker, "compose", *named, "--profile", profile, "config", "--quiet")


@pytest.mark.parametrize("profile", PROFILES)
def test_each_profile_has_a_controller_prometheus_and_grafana(profile: str) -> None:
    chosen = {name for name, service in services().items() if profile in service["profiles"]}
    assert chosen == {profile, "prometheus", "grafana"}
    assert services()[profile]["networks"]["default"]["aliases"] == ["controller"]


@pytest.mark.parametrize("name", services())
def test_container_is_confined_and_on_this_machine_only(name: str) -> None:
    service = services()[name]
    assert service["read_only"] and service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"] and not service.get("privileged")
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    pinned = re.fullmatch(r"\S+:v?\d+(\.\d+){2}", service["image"])
    assert pinned or "build" in service, f"{service['image']} names no release"


@pytest.mark.parametrize("name", ["prometheus", "grafana"])
def test_watcher_has_a_health_check(name: str) -> None:
    assert services()[name]["healthcheck"]["test"]


def test_nobody_looks_at_grafana_unasked() -> None:
    assert services()["grafana"]["environment"]["GF_AUTH_ANONYMOUS_ENABLED"] == "${GRAFANA_ANONYMOUS:-false}"


def test_every_file_that_is_mounted_is_in_the_repository() -> None:
    mounts = [mount for service in services().values() for mount in service["volumes"] if mount.startswith("./")]
    assert mounts and all((ROOT / mount.split(":")[0]).is_dir() for mount in mounts)


def test_ascend_has_the_devices_and_the_driver() -> None:
    ascend = services()["ascend"]
    assert ASCEND_DEVICES | {f"/dev/davinci{number}" for number in range(8)} == set(ascend["devices"])
    assert {mount.split(":")[0] for mount in ascend["volumes"]} >= ASCEND_MOUNTS
    assert ascend["shm_size"] == "16gb"
    more = yaml.safe_load(COMPOSE_A3.read_text())["services"]["ascend"]
    assert set(more["devices"]) == {f"/dev/davinci{number}" for number in range(8, 16)}
    assert more["build"]["args"] == {"DEVICE": "a3"}
    assert more["image"] == ascend["image"].replace("910b", "a3")


@pytest.mark.parametrize(("name", "variable"), [("rehearsal", "REHEARSAL_SGLANG"), ("ascend", "ASCEND_SGLANG")])
def test_releases_are_built_side_by_side(name: str, variable: str) -> None:
    """An image is named by the release that is built into it, so that two do not take each other's name."""
    service = services()[name]
    release = service["build"]["args"]["SGLANG"]
    default = re.fullmatch(rf"\$\{{{variable}:-(.+)\}}", release)
    assert default and service["image"].endswith(f"-{release}")
    assert f"ARG SGLANG={default[1]}" in (ROOT / service["build"]["dockerfile"]).read_text()


@pytest.mark.parametrize("name", PROFILES)
def test_packages_may_come_from_a_mirror_and_come_from_none_unasked(name: str) -> None:
    build = services()[name]["build"]
    assert build["args"]["PIP_INDEX_URL"] is None
    text = (ROOT / build["dockerfile"]).read_text()
    stages = text.split("\nFROM ")[1:]
    assert all("ARG PIP_INDEX_URL\n" in stage for stage in stages if "pip install" in stage)
    assert "http" not in re.sub(r"http://127\.0\.0\.1:8000", "", text)


def test_exporter_on_the_machine_itself_has_a_name() -> None:
    assert services()["prometheus"]["extra_hosts"] == ["host.docker.internal:host-gateway"]
    assert "host.docker.internal" in (ROOT / "deploy/prometheus/targets/README.md").read_text()


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_dockerfile_has_nothing_for_hadolint_to_say(dockerfile: Path) -> None:
    run(str(Path(sys.executable).with_name("hadolint")), str(dockerfile))


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_image_is_pinned_and_neither_root_nor_unwatched(dockerfile: Path) -> None:
    text = dockerfile.read_text()
    assert ":latest" not in text and ":main" not in text
    assert re.findall(r"^USER (\S+)$", text, re.M)[-1].startswith("1000")
    assert "HEALTHCHECK" in text and "/healthz" in text
    # A proxy that Docker's config.json gives to containers must not be asked.
    assert "ProxyHandler({})" in text


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_everything_that_is_copied_is_let_through_to_the_build(dockerfile: Path) -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    copied = re.findall(r"^COPY (?!--from)(.+)$", dockerfile.read_text(), re.M)
    for words in copied:
        for name in [word for word in words.split()[:-1] if not word.startswith("--")]:
            assert (ROOT / name).exists(), name
            assert f"!{name.removeprefix('./')}" in ignored, name


def test_image_of_the_vendor_is_left_as_it_is() -> None:
    text = (ROOT / "deploy/ascend.Dockerfile").read_text()
    assert "FROM quay.io/ascend/sglang:${SGLANG}-cann${CANN}-${DEVICE}" in text
    installs = re.findall(r"\S*pip\d? install.*", text)
    assert installs and all(command.startswith("/opt/lastpage/bin/pip") for command in installs)
    assert "PATH=" not in text and "PYTHONPATH" not in text


SCRIPTS = sorted((ROOT / "deploy").glob("*.sh"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_script_is_one_that_the_shell_understands(script: Path) -> None:
    run("bash", "-n", str(script))


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_script_is_where_commands_look_for_it(dockerfile: Path) -> None:
    """`lastpage` is on PATH, for `docker exec` too, which runs no entrypoint."""
    text = dockerfile.read_text()
    assert "deploy/lastpage.sh /usr/local/bin/lastpage\n" in text
    for script in SCRIPTS:
        assert f"deploy/{script.name}" in text, script.name


class Stage:
    """The scripts with the paths of the image replaced by stand-ins below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "controller").write_text('#!/bin/sh\necho "$$ ${SEEN:-} $*"\n[ "$1" != engine ]\n')
        (folder / "cann.sh").write_text('export SEEN="${UNSET_BY_CANN}cann$#"; false; true\n')
        for name in ("lastpage", "entrypoint"):
            text = (ROOT / f"deploy/{name}.sh").read_text()
            for there, here in {
                "/opt/lastpage/bin/lastpage": "controller",
                "/usr/local/bin/lastpage": "lastpage",
                "/usr/local/Ascend/ascend-toolkit/set_env.sh": "cann.sh",
            }.items():
                text = text.replace(there, str(folder / here))
            (folder / name).write_text(text)
        for path in folder.iterdir():
            path.chmod(0o755)

    def lines(self, name: str, *arguments: str, **environment: str) -> tuple[int, list[str]]:
        """The process and what it wrote."""
        process = subprocess.Popen(
            [self.folder / name, *arguments],
            env={"PATH": "/usr/bin:/bin", **environment},
            stdout=subprocess.PIPE,
            text=True,
        )
        return process.pid, process.communicate(timeout=20)[0].splitlines()


@pytest.mark.parametrize(("given", "python"), [("/opt/engine/bin/python", "/opt/engine/bin/python"), ("", None)])
def test_entrypoint_makes_the_engine_known_and_becomes_lastpage(tmp_path: Path, given: str, python: str | None) -> None:
    """Served although the engine is refused; where no interpreter is named, the engine is the image's own."""
    environment = {"ENGINE_NAME": "ascend", **({"ENGINE_PYTHON": given} if given else {})}
    pid, (added, served) = Stage(tmp_path).lines("entrypoint", "serve", "--port", "8000", **environment)
    python = python or shutil.which("python3", path="/usr/bin:/bin")
    assert added.endswith(f" engine add ascend --python {python} --no-check")
    # The same process, so that the container's signals reach it.
    assert served == f"{pid} cann0 serve --port 8000"


def test_command_knows_cann_without_the_entrypoint(tmp_path: Path) -> None:
    pid, lines = Stage(tmp_path).lines("lastpage", "shrink", "a b")
    assert lines == [f"{pid} cann0 shrink a b"]


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_image_has_an_engine_from_the_start(dockerfile: Path) -> None:
    assert re.search(r"^ENV .*\bENGINE_NAME=\S+", dockerfile.read_text().replace("\\\n", " "), re.M)


def test_old_runs_are_forgotten_and_no_other(tmp_path: Path) -> None:
    def made(name: str, days: float, file: str = "report.json") -> Path:
        folder = tmp_path / "runs" / name
        (folder / "overlay").mkdir(parents=True)
        (folder / file).touch()
        at = time.time() - days * 86400
        os.utime(folder / file, (at, at))
        os.utime(folder, (at, at))
        return folder

    old, recent = made("old", 31), made("a recent one", 29)
    running, shrunk = made("running", 99, "spec.yaml"), made("old-shrink", 99, "shrunk.yaml")
    script = str(ROOT / "deploy/forget_runs.sh")
    environment = {"PATH": "/usr/bin:/bin", "LASTPAGE_HOME": str(tmp_path)}
    for _ in range(2):
        subprocess.run([script, "30"], env=environment, check=True)
        assert not old.exists() and recent.exists() and running.exists() and shrunk.exists()
    assert subprocess.run([script], env=environment, capture_output=True).returncode != 0


def test_documented_commands_work_with_the_tools_of_these_machines() -> None:
    """curl has --json since 7.82, and Ubuntu 22.04 and openEuler 22.03 have an older one."""
    for name in ("README.md", "docs/deploy.md"):
        text = (ROOT / name).read_text()
        assert "curl --json" not in text and "/opt/lastpage/bin" not in text
