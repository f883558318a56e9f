"""Claims about the Kubernetes manifests: valid by Kubernetes' own schemas, and fitting each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.dashboards.boards import ROOT

FOLDER = ROOT / "deploy/kubernetes"
SERVICE_MONITOR_SCHEMA = Path(__file__).with_name("servicemonitor.schema.json")
KUBERNETES = "1.31"


def manifests() -> dict[str, Any]:
    """All objects by kind and name."""
    found = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if document["kind"] != "Kustomization":
                found[f"{document['kind']}/{document['metadata']['name']}"] = document
    return found


OBJECTS = manifests()
BUILT_IN = {name: item for name, item in OBJECTS.items() if "monitoring.coreos.com" not in item["apiVersion"]}
CONTROLLER = OBJECTS["Deployment/lastpage"]["spec"]["template"]
NIGHTLY = OBJECTS["CronJob/lastpage-nightly"]["spec"]["jobTemplate"]["spec"]["template"]


@pytest.mark.parametrize("name", BUILT_IN)
def test_object_is_of_kubernetes_own_schema(name: str) -> None:
    kubernetes_validate.validate(BUILT_IN[name], KUBERNETES, strict=True)


def test_service_monitor_is_of_the_operators_schema() -> None:
    """Kubernetes itself does not know this kind. What the schema is made from stands in its $comment."""
    schema = json.loads(SERVICE_MONITOR_SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(OBJECTS["ServiceMonitor/lastpage"], schema)


def test_kustomization_names_every_file() -> None:
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    assert set(kustomization["resources"]) == {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}


def test_controller_asks_for_an_npu() -> None:
    (container,) = CONTROLLER["spec"]["containers"]
    for side in ("requests", "limits"):
        assert container["resources"][side]["huawei.com/Ascend910"] == 1


@pytest.mark.parametrize("pod", [CONTROLLER, NIGHTLY], ids=["controller", "nightly"])
def test_pod_is_confined(pod: Any) -> None:
    spec = pod["spec"]
    assert spec["securityContext"]["runAsNonRoot"] and spec["automountServiceAccountToken"] is False
    for container in spec["containers"]:
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]


@pytest.mark.parametrize("pod", [CONTROLLER, NIGHTLY], ids=["controller", "nightly"])
def test_every_mount_has_its_volume(pod: Any) -> None:
    volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
    mounts = {mount["name"] for container in pod["spec"]["containers"] for mount in container["volumeMounts"]}
    assert mounts == volumes


def test_service_and_monitor_find_the_controller() -> None:
    labels = CONTROLLER["metadata"]["labels"]
    service = OBJECTS["Service/lastpage"]
    assert service["spec"]["selector"].items() <= labels.items()
    monitor = OBJECTS["ServiceMonitor/lastpage"]["spec"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (port,) = service["spec"]["ports"]
    assert {endpoint["port"] for endpoint in monitor["endpoints"]} == {port["name"]}
    (container,) = CONTROLLER["spec"]["containers"]
    assert port["targetPort"] in {port["name"] for port in container["ports"]}
    assert NIGHTLY["metadata"]["labels"] != labels, "the nightly's pods must not be taken for the controller"


def test_monitor_scrapes_both_under_the_names_that_dashboards_know() -> None:
    endpoints = OBJECTS["ServiceMonitor/lastpage"]["spec"]["endpoints"]
    jobs = {endpoint["path"]: endpoint["relabelings"][0]["replacement"] for endpoint in endpoints}
    assert jobs == {"/metrics": "lastpage", "/metrics/engine": "sglang"}


def test_nightly_runs_a_spec_that_is_accepted() -> None:
    from service.runs.spec import parse_spec

    text = OBJECTS["ConfigMap/lastpage-nightly"]["data"]["nightly.yaml"]
    spec = parse_spec(yaml.safe_load(text))
    assert spec.load.scenario == "tight"
    (container,) = NIGHTLY["spec"]["containers"]
    assert container["args"][0] == "http://lastpage:8000"
    deadline = OBJECTS["CronJob/lastpage-nightly"]["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"]
    assert deadline > spec.load.duration
