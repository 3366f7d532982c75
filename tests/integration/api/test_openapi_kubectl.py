"""kubectl and client-go with the OpenAPI documents: explain in both versions, and client-side validation."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from harness.clients.api import Api, crd, define
from harness.clients.go_programs import BUILD_TIMEOUT_S, program
from harness.clients.kubectl import Kubectl, each_kubectl, kubectls
from harness.servers.shard_process import process_of

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def _kubeconfig(api: Api, directory: Path) -> Path:
    """A kubeconfig for one workspace."""
    document = yaml.safe_load(process_of(api).kubeconfig.read_text())
    for cluster in document["clusters"]:
        cluster["cluster"]["server"] = f"{api.shard.url}/clusters/{api.cluster}"
    path = directory / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture(params=each_kubectl())
def kubectl(request: pytest.FixtureRequest, api: Api, tmp_path: Path) -> Kubectl:
    """A kubectl for a workspace with a definition of circles."""
    definition = crd("circles")
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["description"] = "A circle has a centre."
    schema["properties"]["spec"]["properties"]["colour"]["description"] = "What it is painted in."
    schema["properties"]["spec"]["properties"]["size"]["nullable"] = True
    define(api, definition)
    return Kubectl(tmp_path, _kubeconfig(api, tmp_path), request.param)


@pytest.mark.parametrize("output", ["plaintext", "plaintext-openapiv2"])
def test_kinds_are_explained_from_both_versions(kubectl: Kubectl, output: str) -> None:
    told = kubectl.ok("explain", "circles", "--output", output)
    assert re.search(r"KIND:\s+Circle", told)
    assert "A circle has a centre." in told
    assert "What it is painted in." in kubectl.ok("explain", "circles.spec.colour", "--output", output)
    every = kubectl.ok("explain", "circles", "--recursive", "--output", output)
    assert {"replicas", "metadata", "managedFields", "selector"} <= set(re.findall(r"\w+", every))
    assert "map[string]string" in kubectl.ok("explain", "configmap.data", "--output", output)
    assert "FIELD" in kubectl.ok("explain", "customresourcedefinition.spec.versions.schema", "--output", output)
    assert kubectl.run("explain", "circles.spec.nothing", "--output", output).code != 0


@pytest.mark.long
def test_every_served_kind_is_explained(kubectl: Kubectl, api: Api) -> None:
    """By one kubectl or another: each takes its share of them."""
    number, of = kubectls().index(Path(kubectl.binary)), len(kubectls())
    groups = api.get("/apis", accept=AGGREGATED).json["items"] + api.get("/api", accept=AGGREGATED).json["items"]
    served = [
        ("/".join(filter(None, [group["metadata"].get("name"), group["versions"][0]["version"]])), resource)
        for group in groups
        for resource in group["versions"][0]["resources"]
    ]
    assert len(served) > 20
    for api_version, resource in served[number::of]:
        told = kubectl.ok("explain", resource["resource"], "--api-version", api_version)
        assert re.search(rf"KIND:\s+{resource['responseKind']['kind']}\n", told)


def test_what_a_schema_does_not_know_is_refused_before_and_after_it_is_sent(kubectl: Kubectl) -> None:
    manifest = {
        "apiVersion": "shapes.example.com/v1",
        "kind": "Circle",
        "metadata": {"name": "one"},
        "spec": {"colour": "red", "nothing": 1},
    }
    refused = kubectl.run("apply", "-f", "-", "--validate=strict", stdin=yaml.safe_dump(manifest))
    assert refused.code != 0
    assert 'unknown field "spec.nothing"' in refused.stderr
    del manifest["spec"]["nothing"]  # type: ignore[attr-defined]
    manifest["spec"]["size"] = None  # type: ignore[index]
    kubectl.ok("apply", "-f", "-", "--validate=strict", stdin=yaml.safe_dump(manifest))
    assert "unchanged" in kubectl.ok("apply", "-f", "-", stdin=yaml.safe_dump(manifest))


@pytest.mark.timeout(int(BUILD_TIMEOUT_S) + 120)
def test_client_go_reads_both_versions_below_a_workspace(api: Api, tmp_path: Path) -> None:
    define(api, crd("circles"))
    run = [str(program("openapi")), "served", str(_kubeconfig(api, tmp_path))]
    done = subprocess.run(run, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found = {check["check"]: check["found"] for check in map(json.loads, done.stdout.splitlines())}
    assert found.pop("v2") > 150
    assert {"v1", "shapes.example.com/v1", "rbac.authorization.k8s.io/v1"} < found.keys()
    assert all(found.values())
