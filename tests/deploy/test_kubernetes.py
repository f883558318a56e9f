"""Claims about the Kubernetes manifests: valid by Kubernetes' own schemas, and fitting each other."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.dashboards.boards import ROOT
from tests.deploy.test_containers import ASCEND_MOUNTS

FOLDER = ROOT / "deploy/kubernetes"
FOLDERS = ("base", "prometheus-operator")
SERVICE_MONITOR_SCHEMA = Path(__file__).with_name("servicemonitor.schema.json")
KUBERNETES = "1.31"


def manifests() -> dict[str, Any]:
    """All objects by kind and name."""
    found = {}
    for path in sorted(path for folder in FOLDERS for path in (FOLDER / folder).glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if document["kind"] not in ("Kustomization", "Component"):
                found[f"{document['kind']}/{document['metadata']['name']}"] = document
    return found


OBJECTS = manifests()
BUILT_IN = {name: item for name, item in OBJECTS.items() if "monitoring.coreos.com" not in item["apiVersion"]}
CONTROLLER = OBJECTS["Deployment/lastpage"]["spec"]["template"]
NIGHTLY = OBJECTS["CronJob/lastpage-nightly"]["spec"]["jobTemplate"]["spec"]["template"]
RETENTION = OBJECTS["CronJob/lastpage-retention"]["spec"]["jobTemplate"]["spec"]["template"]
PODS = pytest.mark.parametrize("pod", [CONTROLLER, NIGHTLY, RETENTION], ids=["controller", "nightly", "retention"])


@pytest.mark.parametrize("name", BUILT_IN)
def test_object_is_of_kubernetes_own_schema(name: str) -> None:
    kubernetes_validate.validate(BUILT_IN[name], KUBERNETES, strict=True)


def test_service_monitor_is_of_the_operators_schema() -> None:
    """Kubernetes itself does not know this kind. What the schema is made from stands in its $comment."""
    schema = json.loads(SERVICE_MONITOR_SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(OBJECTS["ServiceMonitor/lastpage"], schema)


@pytest.mark.parametrize("folder", FOLDERS)
def test_kustomization_names_every_file(folder: str) -> None:
    kustomization = yaml.safe_load((FOLDER / folder / "kustomization.yaml").read_text())
    files = {path.name for path in (FOLDER / folder).glob("*.yaml")}
    assert set(kustomization["resources"]) == files - {"kustomization.yaml"}


def test_base_needs_no_operator() -> None:
    """`kubectl apply` refuses all of it when a kind is not known to the cluster."""
    for path in (FOLDER / "base").glob("*.yaml"):
        for document in yaml.safe_load_all(path.read_text()):
            assert "monitoring.coreos.com" not in document["apiVersion"], path.name


def built(folder: Path) -> dict[str, Any]:
    """What `kubectl apply -k` would send, by kind and name."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("no kubectl here, which builds what kustomizations say")
    answer = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    objects = yaml.safe_load_all(answer.stdout)
    return {f"{item['kind']}/{item['metadata']['name']}": item for item in objects}


def test_a_copy_of_the_example_says_what_is_so_on_a_cluster(tmp_path: Path) -> None:
    """As the documentation has it: a copy beside the example, with an image, nodes and a volume of models."""
    shutil.copytree(FOLDER, tmp_path / "kubernetes", ignore=shutil.ignore_patterns("site"))
    site = shutil.copytree(tmp_path / "kubernetes/example", tmp_path / "kubernetes/site")
    objects = built(site)
    assert objects.keys() == OBJECTS.keys()
    for name, item in objects.items():
        if name in BUILT_IN:
            kubernetes_validate.validate(item, KUBERNETES, strict=True)
    pod = objects["Deployment/lastpage"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert {"name": "models", "mountPath": "/models", "readOnly": True} in container["volumeMounts"]
    assert len(container["volumeMounts"]) == len(CONTROLLER["spec"]["containers"][0]["volumeMounts"]) + 1
    assert pod["nodeSelector"]
    images = set(re.findall(r"'image': '(\S+)'", str(objects)))
    assert len(images) == 1 and images.pop().startswith("registry.example/lastpage:ascend-910b-v")


def test_base_can_be_applied_without_the_operator() -> None:
    assert built(FOLDER / "base").keys() == BUILT_IN.keys()


def test_pod_has_the_mounts_of_the_compose_file() -> None:
    paths = {volume["hostPath"]["path"] for volume in CONTROLLER["spec"]["volumes"] if "hostPath" in volume}
    assert paths == ASCEND_MOUNTS


def test_only_prometheus_and_the_nightly_soak_reach_the_api() -> None:
    policy = OBJECTS["NetworkPolicy/lastpage"]["spec"]
    assert policy["policyTypes"] == ["Ingress"]
    assert policy["podSelector"]["matchLabels"] == CONTROLLER["metadata"]["labels"]
    (rule,) = policy["ingress"]
    prometheus, nightly = rule["from"]
    assert prometheus == {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    assert nightly == {"podSelector": {"matchLabels": NIGHTLY["metadata"]["labels"]}}
    assert rule["ports"] == [{"port": "http"}]


def test_old_runs_are_deleted_from_the_controllers_volume_on_its_node() -> None:
    volume = {item["name"]: item for item in CONTROLLER["spec"]["volumes"]}["home"]
    assert RETENTION["spec"]["volumes"] == [volume]
    (container,) = RETENTION["spec"]["containers"]
    assert container["command"] == ["/usr/local/lib/lastpage/forget_runs.sh", "30"]
    (rule,) = RETENTION["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert rule["labelSelector"]["matchLabels"] == CONTROLLER["metadata"]["labels"]


def test_controller_asks_for_an_npu() -> None:
    (container,) = CONTROLLER["spec"]["containers"]
    for side in ("requests", "limits"):
        assert container["resources"][side]["huawei.com/Ascend910"] == 1


@PODS
def test_pod_is_confined(pod: Any) -> None:
    spec = pod["spec"]
    assert spec["securityContext"]["runAsNonRoot"] and spec["automountServiceAccountToken"] is False
    for container in spec["containers"]:
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]


@PODS
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
    for other in (NIGHTLY, RETENTION):
        assert other["metadata"]["labels"] != labels, "pods of a job must not be taken for the controller"


def test_monitor_scrapes_both_under_the_names_that_dashboards_know() -> None:
    endpoints = OBJECTS["ServiceMonitor/lastpage"]["spec"]["endpoints"]
    jobs = {endpoint["path"]: endpoint["relabelings"][0]["replacement"] for endpoint in endpoints}
    assert jobs == {"/metrics": "lastpage", "/metrics/engine": "sglang"}


def test_nightly_runs_a_spec_that_is_accepted() -> None:
    from service.spec.parsing import parse_spec

    text = OBJECTS["ConfigMap/lastpage-nightly"]["data"]["nightly.yaml"]
    spec = parse_spec(yaml.safe_load(text))
    assert spec.load.scenario == "tight"
    (container,) = NIGHTLY["spec"]["containers"]
    assert container["args"][0] == "http://lastpage:8000"
    deadline = OBJECTS["CronJob/lastpage-nightly"]["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"]
    assert deadline > spec.load.duration
