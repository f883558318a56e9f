"""Claims about the compose file, the Dockerfiles and what they start, as far as they can be checked without an engine.

The Compose specification's schema is the one that check-jsonschema brings (vendor.compose-spec); hadolint is a package.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
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
    assert more["build"]["args"]["DEVICE"] == "a3"


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_dockerfile_has_nothing_for_hadolint_to_say(dockerfile: Path) -> None:
    run(str(Path(sys.executable).with_name("hadolint")), str(dockerfile))


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_image_is_pinned_and_neither_root_nor_unwatched(dockerfile: Path) -> None:
    text = dockerfile.read_text()
    assert ":latest" not in text and ":main" not in text
    assert re.findall(r"^USER (\S+)$", text, re.M)[-1].startswith("1000")
    assert "HEALTHCHECK" in text and "/healthz" in text


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


def test_entrypoint_is_a_script_that_the_shell_understands() -> None:
    run("bash", "-n", str(ROOT / "deploy/entrypoint.sh"))


def test_entrypoint_makes_the_engine_known_and_becomes_lastpage(tmp_path: Path) -> None:
    """With the paths of the image replaced by stand-ins."""
    lastpage = tmp_path / "lastpage"
    lastpage.write_text('#!/bin/sh\necho "$$ $*"\n')
    lastpage.chmod(0o755)
    cann = tmp_path / "set_env.sh"
    cann.write_text('export SEEN="$UNSET_BY_CANN"yes\n')
    text = (ROOT / "deploy/entrypoint.sh").read_text()
    for there, here in {
        "/opt/lastpage/bin/lastpage": lastpage,
        "/usr/local/Ascend/ascend-toolkit/set_env.sh": cann,
    }.items():
        assert there in text
        text = text.replace(there, str(here))
    script = tmp_path / "entrypoint.sh"
    script.write_text(text)
    environment = {"ENGINE_NAME": "0.5.23", "ENGINE_PYTHON": "/opt/engine/bin/python", "PATH": "/usr/bin:/bin"}
    process = subprocess.Popen(
        ["bash", str(script), "serve", "--port", "8000"], env=environment, stdout=subprocess.PIPE, text=True
    )
    added, served = process.communicate(timeout=20)[0].splitlines()
    assert added.endswith(" engine add 0.5.23 --python /opt/engine/bin/python --no-check")
    # The same process, so that the container's signals reach it.
    assert served == f"{process.pid} serve --port 8000"
