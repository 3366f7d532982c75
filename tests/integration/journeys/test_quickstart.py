"""A Deployment with its configuration, and a whole application, run on the clusters of their labels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from atoll.machinery.meta.objects import Object
from harness.clients.api import eventually
from harness.data.manifests import SHARED_DATA
from integration.journeys.fleet import WAIT_S, Edge, Side, configmap, deployment, namespace, placement

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

BOUTIQUE = SHARED_DATA / "online-boutique" / "kubernetes-manifests.yaml"
NO_BOUTIQUE = "no online boutique: ../shared/data does not hold it"
AVAILABLE = "condition=Available"
DEPLOYMENTS = 12


def is_whole(edge: Edge) -> bool:
    """Whether all Deployments of the shop are at an edge cluster."""
    return len(edge.names("deployments", "-n", "boutique")) == DEPLOYMENTS


def copies(edge: Edge) -> list[Object]:
    """The Deployments of the shop in the mailbox of a cluster."""
    return list(edge.copies("deployments", "-n", "boutique")["items"])


def is_reported(edge: Edge) -> bool:
    """Whether the mailbox has the status of all of them."""
    found = copies(edge)
    return len(found) == DEPLOYMENTS and all(each.get("status", {}).get("availableReplicas") for each in found)


def is_bound(edge: Edge) -> bool:
    """Whether the mailbox has the binding of the workspace."""
    found = {each["metadata"]["name"]: each for each in edge.copies("apibindings")["items"]}
    return bool(found.get("bind-kubernetes", {}).get("status", {}).get("phase") == "Bound")


def is_withdrawn(edge: Edge) -> bool:
    return not copies(edge)


def test_a_deployment_runs_with_its_configuration_on_two_clusters(
    register: Callable[..., list[Edge]], workspace: Callable[[str], Side]
) -> None:
    edges, where = register("florin", "guilder"), "commonstuff"
    for each in edges:
        each.label("env=prod")
    here = workspace("quickstart")
    tests: list[Object] = [
        {"apiGroup": "", "resources": ["configmaps"], "namespaces": [where], "objectNames": ["*"]},
        {
            "apiGroup": "apps",
            "resources": ["deployments"],
            "namespaceSelectors": [{"matchLabels": {"common": "yes"}}],
            "objectNames": ["commond"],
        },
        {"apiGroup": "apis.kcp.io", "resources": ["apibindings"], "objectNames": ["bind-kubernetes"]},
    ]
    # Kinds that nobody has come up from nowhere, and hold up nothing.
    upsync = [
        {"apiGroup": "group1.test", "resources": ["sprockets"], "namespaces": ["orbital"], "names": ["george"]},
        {"apiGroup": "group2.test", "resources": ["cogs"], "names": ["william"]},
    ]
    here.apply(placement("edge-placement-c", {"env": "prod"}, *tests, upsync=upsync))
    page = {"index.html": "<html>on the edge</html>"}
    server = deployment("commond", where)
    pod = server["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "htdocs", "configMap": {"name": "httpd-htdocs", "optional": False}}]
    pod["containers"][0]["volumeMounts"] = [{"name": "htdocs", "mountPath": "/usr/local/apache2/htdocs"}]
    other = deployment("other", where)
    here.apply(namespace(where, common="yes"), configmap("httpd-htdocs", where, page), server, other)
    for each in edges:
        each.has("deployment/commond", "-n", where, state=AVAILABLE)
        assert each.get("configmap/httpd-htdocs", "-n", where)["data"] == page
        found = each.get("deployment/commond", "-n", where)["spec"]["template"]["spec"]
        assert found["volumes"][0]["configMap"]["name"] == "httpd-htdocs"
        assert each.names("deployment/other", "-n", where) == []
        eventually(partial(is_bound, each), "the binding is in the mailbox", WAIT_S)
    here.has("edgeplacement/edge-placement-c", state="jsonpath={.status.destinations.upToDate}=2")
    here.ok("delete", "edgeplacement", "edge-placement-c")
    for each in edges:
        each.lost("deployment/commond", "-n", where)
        each.lost("configmap/httpd-htdocs", "-n", where)


@pytest.mark.skipif(not BOUTIQUE.is_file(), reason=NO_BOUTIQUE)
def test_an_online_shop_runs_on_two_of_three_clusters_and_goes_with_its_placement(
    fleet: list[Edge], workspace: Callable[[str], Side]
) -> None:
    for each in fleet[:2]:
        each.label("shops=yes")
    here = workspace("boutique")
    # Its accounts are data there.
    here.ok("kubestellar", "view")
    here.apply(namespace("boutique"), placement("boutique", {"shops": "yes"}, {"namespaces": ["boutique"]}))
    here.ok("apply", "-n", "boutique", "-f", str(BOUTIQUE))
    for each in fleet[:2]:
        eventually(partial(is_whole, each), "they are at the edge", WAIT_S)
        flags = ("--all", "-n", "boutique", "--timeout=170s")
        each.ok("wait", f"--for={AVAILABLE}", "deployments", *flags, timeout_s=WAIT_S)
        eventually(partial(is_reported, each), "status is in the mailbox", WAIT_S)
    assert fleet[2].names("namespace/boutique") == []
    here.ok("delete", "edgeplacement", "boutique")
    for each in fleet[:2]:
        each.lost("deployments,services,pods", "-n", "boutique")
        eventually(partial(is_withdrawn, each), "no copies", WAIT_S)
