"""Kinds that act are data in a workspace, which grants and refuses what it did before, and act at the edge."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

import pytest

from atoll.machinery.meta.objects import Object
from harness.clients.api import eventually
from harness.data.manifests import SHARED_DATA, gateway_examples, manifests_folder, sources
from integration.journeys.fleet import WAIT_S, Edge, Side, namespace, placement

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

FILES = ("metallb/metallb-native.yaml", *(f"metrics-server/{name}.yaml" for name in ("rbac", "service", "apiservice")))
NO_APPLICATIONS = "no applications with accounts and webhooks: ../shared/data does not hold them"
PODS_OF_ALL = ("auth", "can-i", "list", "pods", "-A")
#: Another bundle than the policy of the Gateway API admits.
OLDER = "gateway.networking.k8s.io/bundle-version=v1.2.0"
GATEWAYS = "crd/gateways.gateway.networking.k8s.io"
POLICIES: Object = {
    "apiGroup": "admissionregistration.k8s.io",
    "resources": ["validatingadmissionpolicies", "validatingadmissionpolicybindings"],
}
POOL: Object = {
    "apiVersion": "metallb.io/v1beta1",
    "kind": "IPAddressPool",
    "metadata": {"name": "pool", "namespace": "metallb-system"},
    "spec": {"addresses": ["10.9.0.0/24"]},
}


def rights(side: Side, account: str) -> str:
    """All that an account may do in namespace `default`."""
    return side.ok("auth", "can-i", "--list", f"--as=system:serviceaccount:{account}", "-n", "default")


def has_all(side: Side, kind: str, names: list[str]) -> bool:
    return side.names(kind, "-A") == names


def test_the_gateway_api_with_its_policy_and_examples_is_at_the_edge_as_it_was_written(
    edge: Edge, workspace: Callable[[str], Side]
) -> None:
    folder = manifests_folder(sources()[0])
    edge.label("gateways=yes")
    here = workspace("gateways")
    here.ok("kubestellar", "view")
    examples = gateway_examples(folder)
    spaces = {each["metadata"].get("namespace", "default") for each in examples} - {"default"}
    here.apply(placement("p", {"gateways": "yes"}, {"apiGroup": "gateway.networking.k8s.io"}, POLICIES))
    here.ok("apply", "--server-side", "-f", str(folder / "gateway-api"), timeout_s=WAIT_S)
    here.ok("wait", "--for=condition=Established", "crds", "--all", "--timeout=60s")
    here.apply(*map(namespace, sorted(spaces)), *examples)
    kinds = {each["kind"].lower() for each in examples}
    for kind in sorted(kinds):
        wanted = here.names(kind, "-A")
        assert wanted
        eventually(partial(has_all, edge, kind, wanted), f"each {kind}", WAIT_S)
    edge.has("validatingadmissionpolicybinding/safe-upgrades.gateway.networking.k8s.io")
    change = ("annotate", GATEWAYS, "--overwrite", OLDER, "--dry-run=server")

    def refused() -> bool:
        return "prohibited by default" in edge.kubectl.run(*change).stderr

    eventually(refused, "the policy is in effect at the edge", WAIT_S)
    here.ok("kubestellar", "view", "--off")
    here.ok(*change)
    assert here.names("validatingadmissionpolicies") == []
    here.ok("delete", "edgeplacement", "p")
    edge.lost("gateways.gateway.networking.k8s.io", "-A")
    edge.lost("validatingadmissionpolicies")


@pytest.mark.skipif(not (SHARED_DATA / "metallb").is_dir(), reason=NO_APPLICATIONS)
def test_an_application_with_accounts_roles_webhooks_and_an_api_acts_at_the_edge_alone(
    edge: Edge, workspace: Callable[[str], Side]
) -> None:
    edge.label("applications=yes")
    here = workspace("applications")
    accounts = ("metallb-system:controller", "kube-system:metrics-server")
    before = [rights(here, each) for each in accounts]
    here.ok("kubestellar", "view")
    here.apply(namespace("kube-system"))
    for file in FILES:
        here.ok("apply", "--server-side", "-f", str(SHARED_DATA / file), timeout_s=WAIT_S)
    groups = ("rbac.authorization", "admissionregistration", "apiregistration", "apiextensions")
    acting: list[Object] = [{"apiGroup": f"{each}.k8s.io"} for each in groups]
    here.apply(placement("p", {"applications": "yes"}, {"namespaces": ["metallb-system", "kube-system"]}, *acting))
    edge.has("deployment/controller", "-n", "metallb-system", state="condition=Available")
    edge.has("daemonset/speaker", "-n", "metallb-system", state="jsonpath={.status.numberReady}=1")
    # At the edge the accounts have their rights, the webhook is called, and the API is one that does not answer.
    listing = (*PODS_OF_ALL, f"--as=system:serviceaccount:{accounts[1]}")
    eventually(lambda: edge.kubectl.run(*listing).code == 0, "the account has its rights", WAIT_S)
    eventually(lambda: "webhook" in refusal(edge), "the webhook is called", WAIT_S)
    edge.has("apiservice/v1beta1.metrics.k8s.io", state="condition=Available=False")
    # In the workspace all is as it was.
    here.ok("kubestellar", "view", "--off")
    assert [rights(here, each) for each in accounts] == before
    assert here.kubectl.run(*listing).code == 1
    assert refusal(here) == ""
    assert "metrics.k8s.io/v1beta1" not in here.ok("api-versions").splitlines()
    here.ok("delete", "edgeplacement", "p")
    edge.lost("apiservice/v1beta1.metrics.k8s.io")
    edge.lost("validatingwebhookconfigurations")
    edge.lost("deployments,daemonsets,roles", "-n", "metallb-system")


def refusal(side: Side) -> str:
    """What a dry run of an IPAddressPool is refused with; empty if it would be made."""
    return side.kubectl.run("create", "--dry-run=server", "-f", "-", stdin=json.dumps(POOL)).stderr
