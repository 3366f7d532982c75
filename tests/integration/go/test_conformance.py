"""Kubernetes' own conformance specs that need no nodes, run as they are: the module tests/go/conformance.

Those of Kubernetes' own kinds run in a workspace that serves them. They belong to the long tier: the specs and their
framework compile much of Kubernetes, and contain waits of minutes. They run once with protobuf, the default of the
suite's clients, and once with JSON. tests/CONFORMANCE.md lists the tests of this tree that make the same assertions in
seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.clients.go_programs import BUILD_TIMEOUT_S, program
from harness.clients.kubectl import kubectls

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
    )
)
#: Specs that need more than a workspace: a Deployment that serves a conversion webhook.
SKIP = "|".join((r"\[Slow\]", "MUST list and watch custom resources matching the field"))
#: A fixed list of groups, which a workspace of type `kubernetes` has.
ALL_GROUPS = "locate the groupVersion and a resource"
SPECS = 54
#: Specs of kinds that a workspace of type `kubernetes` serves.
KUBERNETES = "|".join(
    (
        ALL_GROUPS,
        "AggregatedDiscovery should",
        "FieldValidation should detect unknown",
        "API chunking should return",
        r"ResourceQuota should (create a ResourceQuota and capture|verify)",
        "Namespaces .*should ensure that all services",
        "ValidatingAdmissionPolicy .*should (validate|allow)",
        r"MutatingAdmissionPolicy .*should mutate a Deployment \[",
        "API priority and fairness",
        "PodTemplates",
        "RuntimeClass should (support|reject a Pod requesting a deleted)",
        "CronJob should support",
        "EndpointSlice should support creating",
        "lifecycle of an Endpoint",
        "Ingress(Class)? API",
        "ServiceCIDR and IPAddress API",
        "Services should (delete a collection|find a service|complete a service status)",
        "LimitRange should",
        "StorageClasses",
        "VolumeAttributesClass",
        "CSIInlineVolumes",
        "CSINodes",
        "CSIStorageCapacity",
        "PersistentVolumes CSI Conformance",
        "Kubectl (cluster-info|diff|server-side)",
    )
)
KUBERNETES_SPECS = 50


MEDIA = pytest.mark.parametrize(
    "media", ["application/vnd.kubernetes.protobuf", "application/json"], ids=["protobuf", "json"]
)


@MEDIA
def test_conformance_specs_without_nodes_pass(workspace: Path, tmp_path: Path, media: str) -> None:
    run(workspace, tmp_path, media, FOCUS, SPECS, f"{SKIP}|{ALL_GROUPS}")


@MEDIA
def test_conformance_specs_of_kubernetes_kinds_pass(kubernetes_workspace: Path, tmp_path: Path, media: str) -> None:
    run(kubernetes_workspace, tmp_path, media, KUBERNETES, KUBERNETES_SPECS, SKIP)


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
