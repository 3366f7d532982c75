"""Kubernetes' own conformance specs that need no nodes, run as they are: the module tests/go/conformance.

Those of Kubernetes' own kinds run in a workspace that serves them. They belong to the long tier: the specs and their
framework compile much of Kubernetes, and contain waits of minutes. They run once with protobuf, the default of the
suite's clients, and once with JSON. tests/CONFORMANCE.md lists the tests of this tree that make the same assertions in
seconds.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.clients.go_programs import BUILD_TIMEOUT_S, go, program
from harness.clients.kubectl import Kubectl, entered, kubectls
from harness.servers.shard_process import ShardProcess

RUN_TIMEOUT_S = 900
pytestmark = [pytest.mark.long, pytest.mark.timeout(int(BUILD_TIMEOUT_S) + RUN_TIMEOUT_S)]

FOCUS = "|".join(
    (
        r"\] Discovery should",
        "AggregatedDiscovery.*CRDs",
        "server version",
        "CustomResourceDefinition",
        "CustomResourceFieldSelectors",
        "CustomResourcePublishOpenAPI",
        "FieldValidation.*CR",
        "Watchers",
        "406 for a backend",
        "Namespaces .*should (patch|apply)",
        "SubjectReview",
        "Certificates API",
        "ServiceAccounts should (run|update|create a serviceAccountToken|guarantee)",
        "AdmissionPolicy.*API operations",
        "Events",
        r"ResourceQuota should (create a ResourceQuota and (ensure|capture the life of a (configMap|secret)\.)|be able"
        "|manage|apply)",
        "ConfigMap should (fail|run through|update ConfigMap|be immutable)",
        "Secrets should (fail|patch|be immutable)",
        "Lease lease API",
        "Kubectl (api-versions|version)",
    )
)
#: Specs that need more than a workspace: a Deployment that serves a conversion webhook.
SKIP = "MUST list and watch custom resources matching the field"
#: A fixed list of groups, which a workspace of type `kubernetes` has.
ALL_GROUPS = "locate the groupVersion and a resource"
SPECS = 64
#: Specs of kinds that a workspace of type `kubernetes` serves. Some choose a Node, which is stored and runs nothing.
KUBERNETES = "|".join(
    (
        ALL_GROUPS,
        "AggregatedDiscovery should",
        "FieldValidation should detect unknown",
        "API chunking should",
        r"ResourceQuota should (create a ResourceQuota and capture|verify)",
        "Namespaces .*should ensure that all services",
        "ValidatingAdmissionPolicy .*should (validate|allow)",
        "MutatingAdmissionPolicy .*should mutate a Deployment",
        "API priority and fairness",
        "ServiceAccounts should allow opting out",
        "PodTemplates",
        "RuntimeClass should (support|reject)",
        "Set QOS Class",
        "reject invalid sysctls",
        "Node Lifecycle",
        "CronJob should support",
        "EndpointSlice should support creating",
        "lifecycle of an Endpoint",
        "Ingress(Class)? API",
        "ServiceCIDR and IPAddress API",
        "Services should (delete a collection|find a service|complete a service status)",
        "API Server should",
        "LimitRange should",
        "PriorityClass endpoints",
        "StorageClasses",
        "VolumeAttributesClass",
        "VolumeAttachment",
        "CSIInlineVolumes",
        "CSINodes",
        "CSIStorageCapacity",
        "PersistentVolumes CSI Conformance",
        "Kubectl (cluster-info|diff|server-side|run pod)",
    )
)
KUBERNETES_SPECS = 64
#: No address of this machine that Endpoints may hold.
UNREACHABLE = "EndpointSlices pointing to API Server"


MEDIA = pytest.mark.parametrize(
    "media", ["application/vnd.kubernetes.protobuf", "application/json"], ids=["protobuf", "json"]
)


def own_address() -> str:
    """An address by which others reach this machine; one of loopback if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: this only chooses a route.
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


@pytest.fixture(scope="module")
def reachable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardProcess]:
    """A shard at an address that Endpoints may hold, whose lists can be continued for less than a spec waits."""
    go()
    flags = ("--bind-address", own_address(), "--list-window", "15")
    with ShardProcess(tmp_path_factory.mktemp("conformance"), *flags) as running:
        yield running


@pytest.fixture
def cluster(reachable: ShardProcess, tmp_path: Path) -> Iterator[Path]:
    """A kubeconfig for a workspace of type `kubernetes` with a Node that is ready, and a Lease that somebody renews.

    In any cluster something is written at each moment; a spec sees by it that a list has another revision than before.
    """
    kubeconfig = entered(reachable.kubeconfig, tmp_path, "--type=root:kubernetes")
    kubectl = Kubectl(tmp_path, kubeconfig)
    kubectl.ok(
        "create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "berth"}})
    )
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "stored"}
    kubectl.ok("patch", "node", "berth", "--subresource=status", "-p", json.dumps({"status": {"conditions": [ready]}}))
    kubectl.ok("taint", "node", "berth", "node.kubernetes.io/not-ready:NoSchedule-")
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "berth"}}
    kubectl.ok("create", "-f", "-", stdin=json.dumps(lease))
    ended = threading.Event()

    def renew() -> None:
        turn = 0
        while not ended.wait(5.0):
            turn += 1
            kubectl.ok("patch", "lease", "berth", "-p", json.dumps({"spec": {"leaseTransitions": turn}}))

    renewing = threading.Thread(target=renew)
    renewing.start()
    yield kubeconfig
    ended.set()
    renewing.join()


@MEDIA
def test_conformance_specs_without_nodes_pass(workspace: Path, tmp_path: Path, media: str) -> None:
    run(workspace, tmp_path, media, FOCUS, SPECS, f"{SKIP}|{ALL_GROUPS}")


@MEDIA
def test_conformance_specs_of_kubernetes_kinds_pass(cluster: Path, tmp_path: Path, media: str) -> None:
    is_loopback = own_address().startswith("127.")
    skip = f"{SKIP}|{UNREACHABLE}" if is_loopback else SKIP
    run(cluster, tmp_path, media, KUBERNETES, KUBERNETES_SPECS - is_loopback, skip)


def run(kubeconfig: Path, directory: Path, media: str, focus: str, least: int, skip: str) -> None:
    """Run the specs that a pattern selects; at least so many, and all pass."""
    report = directory / "report.json"
    done = subprocess.run(
        [
            str(program("conformance", "conformance")),
            "-kubeconfig",
            str(kubeconfig),
            "-provider=skeleton",
            "-allowed-not-ready-nodes=-1",
            "-minStartupPods=-1",
            "-num-nodes=1",
            "-dump-logs-on-failure=false",
            "-kubectl-path",
            str(kubectls()[0]),
            f"-kube-api-content-type={media}",
            "-ginkgo.no-color",
            "-ginkgo.focus",
            rf"({focus}).*\[Conformance\]",
            "-ginkgo.skip",
            skip,
            "-ginkgo.json-report",
            str(report),
        ],
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
        env={**os.environ, "HOME": str(directory)},
    )
    assert report.exists(), done.stdout[-3000:] + done.stderr[-3000:]
    specs: list[dict[str, Any]] = json.loads(report.read_text())[0]["SpecReports"]
    ran = [spec for spec in specs if spec["State"] != "skipped" and spec["LeafNodeType"] == "It"]
    failed = [spec for spec in ran if spec["State"] != "passed"]
    assert not {spec["LeafNodeText"]: spec.get("Failure", {}).get("Message") for spec in failed}
    assert done.returncode == 0
    assert len(ran) >= least
