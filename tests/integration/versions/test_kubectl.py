"""kubectl with APIExports in either version."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from harness.clients.api import Api
from harness.clients.exports import EXPORTS, claim, cluster_of, export, schema, wait_condition
from harness.clients.kubectl import Kubectl, Result
from harness.servers.shard_process import process_of

OLD, NEW = "apiexports.v1alpha1.apis.kcp.io", "apiexports.v1alpha2.apis.kcp.io"
NAMES = "{.spec.latestResourceSchemas}"


class Here:
    """kubectl in one workspace."""

    def __init__(self, kubectl: Kubectl, api: Api) -> None:
        self._kubectl, self._server = kubectl, f"--server={api.shard.url}/clusters/{cluster_of(api)}"

    def ok(self, *words: str) -> str:
        return self._kubectl.ok(self._server, *words)

    def run(self, *words: str) -> Result:
        return self._kubectl.run(self._server, *words)


@pytest.fixture
def kubectl(tmp_path: Path, provider: Api) -> Here:
    return Here(Kubectl(tmp_path, process_of(provider).kubeconfig), provider)


def test_kubectl_takes_the_later_version_unless_told(kubectl: Here, provider: Api) -> None:
    provider.post(EXPORTS, export("shapes", schema("circles")))
    assert "apis.kcp.io/v1alpha2" in kubectl.ok("get", "apiexports", "shapes", "-o", "jsonpath={.apiVersion}")
    assert "today.circles" in kubectl.ok("get", OLD, "shapes", "-o", f"jsonpath={NAMES}")
    assert kubectl.ok("get", NEW).splitlines()[0].split() == ["NAME", "AGE"]
    assert kubectl.ok("get", OLD).splitlines()[0].split() == ["NAME", "AGE", "READY"]


@pytest.mark.long
@pytest.mark.parametrize("how", [(), ("--server-side",)], ids=["client", "server"])
def test_manifests_of_the_old_version_are_applied_again_and_again(
    kubectl: Here, provider: Api, tmp_path: Path, how: tuple[str, ...]
) -> None:
    manifest = {
        "apiVersion": "apis.kcp.io/v1alpha1",
        "kind": "APIExport",
        "metadata": {"name": "shapes"},
        "spec": {"latestResourceSchemas": ["today.circles.shapes.example.com"]},
    }
    file = tmp_path / "export.yaml"
    file.write_text(yaml.safe_dump(manifest))
    kubectl.ok("apply", *how, "-f", str(file))
    wait_condition(provider, f"{EXPORTS}/shapes", "IdentityValid")
    first = provider.get(f"{EXPORTS}/shapes").json
    unchanged = kubectl.ok("apply", *how, "-f", str(file))
    assert ("serverside-applied" if how else "unchanged") in unchanged
    assert provider.get(f"{EXPORTS}/shapes").json["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    manifest["spec"] = {"latestResourceSchemas": ["next.circles.shapes.example.com"]}
    file.write_text(yaml.safe_dump(manifest))
    kubectl.ok("apply", *how, "-f", str(file))
    found = provider.get(f"{EXPORTS}/shapes").json["spec"]
    assert [each["schema"] for each in found["resources"]] == ["next.circles.shapes.example.com"]
    assert found["identity"] == first["spec"]["identity"]


def test_a_manifest_that_was_read_in_one_version_is_replaced_in_it(
    kubectl: Here, provider: Api, tmp_path: Path
) -> None:
    provider.post(EXPORTS, export("shapes", schema("circles"), claims=[claim("configmaps", "", "get")]))
    before = wait_condition(provider, f"{EXPORTS}/shapes", "IdentityValid")
    file = tmp_path / "read.yaml"
    file.write_text(kubectl.ok("get", OLD, "shapes", "-o", "yaml"))
    kubectl.ok("replace", "-f", str(file))
    assert provider.get(f"{EXPORTS}/shapes").json["spec"] == before["spec"]


def test_kubectl_explains_both_versions(kubectl: Here) -> None:
    assert "latestResourceSchemas" in kubectl.ok("explain", "apiexports.spec", "--api-version=apis.kcp.io/v1alpha1")
    assert "resources" in kubectl.ok("explain", "apiexports.spec", "--api-version=apis.kcp.io/v1alpha2")
    assert "resourceSelector" in kubectl.ok(
        "explain", "apibindings.spec.permissionClaims", "--api-version=apis.kcp.io/v1alpha1"
    )
