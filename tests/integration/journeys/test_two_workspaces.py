"""Two workspaces on two clusters: what each sends, rendered for each cluster, and what comes back of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from atoll.machinery.edge.names import CUSTOMIZER, EXPAND
from atoll.machinery.meta.objects import Object
from harness.clients.api import eventually
from integration.journeys.fleet import WAIT_S, Edge, Side, configmap, deployment, namespace, placement
from integration.journeys.summaries import is_reported, summary

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

#: Namespaces of this file alone, as those of the other files stay at the clusters.
COMMON, SPECIAL = "common-pages", "special-pages"
PAGE, API = "httpd-htdocs", "v1090.example.my"
SPROCKETS: Object = {"apiGroup": "group1.test", "resources": ["sprockets"], "namespaces": ["orbital"], "names": ["a"]}
COGS: Object = {"apiGroup": "group2.test", "resources": ["cogs"], "names": ["william"]}
WIDGETS: Object = {"apiGroup": "group3.test", "resources": ["widgets"], "names": ["*"]}
BINDING: Object = {"apiGroup": "apis.kcp.io", "resources": ["apibindings"], "objectNames": ["bind-kubernetes"]}
COUNT = r"{.metadata.annotations.kubestellar\.io/executing-count}"


def customizer(where: str, value: str) -> Object:
    """One that gives a container's variable a value with a parameter."""
    head = {"name": "example", "namespace": where, "annotations": {EXPAND: "true"}}
    replacement = {"path": "$.spec.template.spec.containers.0.env.0.value", "value": f'"{value}"'}
    made = {"apiVersion": "edge.kubestellar.io/v2alpha1", "kind": "Customizer", "metadata": head}
    return {**made, "replacements": [replacement]}


def server(kind: str, name: str, where: str) -> Object:
    """A web server that is customized, and whose pages are in a ConfigMap."""
    found = deployment(name, where, kind)
    found["metadata"]["annotations"] = {CUSTOMIZER: "example"}
    pod = found["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "htdocs", "configMap": {"name": PAGE}}]
    pod["containers"][0]["env"] = [{"name": "EXAMPLE_VAR", "value": "example value"}]
    return found


def page(where: str) -> Object:
    return configmap(PAGE, where, {"index.html": "Running in %(loc-name)."}, **{EXPAND: "true"})


def api_service() -> Object:
    service = {"name": "my-service", "namespace": "my-example"}
    spec = {"group": "example.my", "version": "v1090", "groupPriorityMinimum": 360, "versionPriority": 42}
    head = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": API}}
    return {**head, "spec": {**spec, "service": service}}


def common_objects() -> list[Object]:
    tests: list[Object] = [
        {"apiGroup": "", "resources": ["configmaps"], "namespaces": [COMMON], "objectNames": [PAGE]},
        {"apiGroup": "apps", "resources": ["replicasets"], "namespaces": [COMMON]},
        BINDING,
    ]
    sent = placement("c", {"example": "yes"}, *tests, upsync=[SPROCKETS, COGS], wantSingletonReportedState=True)
    objects = [customizer(COMMON, "env is %(env)"), page(COMMON), server("ReplicaSet", "commond", COMMON)]
    return [namespace(COMMON), *objects, sent]


def special_objects() -> list[Object]:
    where = {"namespaceSelectors": [{"matchLabels": {"special": "yes"}}]}
    tests: list[Object] = [
        {"apiGroup": "", "resources": ["configmaps"], "objectNames": [PAGE], **where},
        {"apiGroup": "apps", "resources": ["deployments"], "objectNames": ["speciald"], **where},
        {"apiGroup": "apiregistration.k8s.io", "resources": ["apiservices"], "objectNames": [API]},
        BINDING,
    ]
    selector = {"example": "yes", "extended": "yes"}
    sent = placement("s", selector, *tests, upsync=[SPROCKETS, WIDGETS], wantSingletonReportedState=True)
    objects = [customizer(SPECIAL, "in %(env) env"), page(SPECIAL), server("Deployment", "speciald", SPECIAL)]
    return [namespace(SPECIAL, special="yes"), *objects, api_service(), sent]


def destinations(side: Side) -> list[tuple[str, str]]:
    """Locations and SyncTargets of the slices of a workspace, whose owner is its placement."""
    slices = side.get("singleplacementslices")["items"]
    assert all(each["metadata"]["ownerReferences"][0]["kind"] == "EdgePlacement" for each in slices)
    rows = [row for each in slices for row in each["destinations"]]
    assert all(row["cluster"] and row["syncTargetUID"] for row in rows)
    return sorted((row["locationName"], row["syncTargetName"]) for row in rows)


def listing(edge: Edge) -> Object:
    """The list of a mailbox: names by kind, and how many sets come up."""
    (found,) = [each["spec"] for each in edge.copies("syncerconfigs")["items"] if each["metadata"]["name"] == "the-one"]
    rows = {
        f"{each['resource']} {row['namespace']}": row["names"]
        for each in found.get("namespacedObjects", ())
        for row in each["objectsByNamespace"]
    }
    rows |= {each["resource"]: each["objects"] for each in found.get("clusterScope", ())}
    return {**rows, "upsync": len(found.get("upsync", ())), "scope": found["namespaceScope"]}


def ready(edge: Edge, resource: str, name: str, where: str) -> object:
    """The number of ready replicas in a mailbox."""
    found = {each["metadata"]["name"]: each for each in edge.copies(resource, "-n", where)["items"]}
    return found.get(name, {}).get("status", {}).get("readyReplicas")


def variable(edge: Edge, what: str, where: str) -> object:
    return edge.ok("get", what, "-n", where, "-o", "jsonpath={.spec.template.spec.containers[0].env[0].value}")


def text(edge: Edge, where: str) -> str:
    return edge.ok("get", "configmap", PAGE, "-n", where, "-o", r"jsonpath={.data.index\.html}")


def test_two_workspaces_have_renderings_lists_and_reports_of_their_own_on_two_clusters(
    register: Callable[..., list[Edge]], workspace: Callable[[str], Side]
) -> None:
    one, two = register("florin", "guilder")
    one.label("loc-name=florin", "env=prod", "example=yes", "extended=no")
    two.label("loc-name=guilder", "env=prod", "example=yes", "extended=yes")
    common, special = workspace("example-c"), workspace("example-s")
    # An APIService is data there.
    special.ok("kubestellar", "view")
    common.apply(*common_objects())
    special.apply(*special_objects())
    special.ok("kubestellar", "view", "--off")
    # Where, and what the mailboxes list.
    names = [(NAME, NAME) for NAME in (one.name, two.name)]
    eventually(lambda: destinations(common) == names, "both clusters", WAIT_S)
    eventually(lambda: destinations(special) == names[1:], "the cluster with the label", WAIT_S)
    mine: Object = {f"configmaps {COMMON}": [PAGE], f"replicasets {COMMON}": ["commond"], "upsync": 2, "scope": {}}
    theirs = {f"configmaps {SPECIAL}": [PAGE], f"deployments {SPECIAL}": ["speciald"], "apiservices": [API]}
    eventually(lambda: listing(one) == mine, "the list of what is common", WAIT_S)
    eventually(lambda: listing(two) == {**mine, **theirs, "upsync": 3}, "the list of both, each set once", WAIT_S)
    # At the edge, rendered.
    for each in (one, two):
        each.has("replicaset/commond", "-n", COMMON, state="jsonpath={.status.readyReplicas}=1")
        assert text(each, COMMON) == f"Running in {'florin' if each is one else 'guilder'}."
        assert variable(each, "replicaset/commond", COMMON) == "env is prod"
        eventually(lambda: ready(each, "replicasets", "commond", COMMON) == 1, "it is reported", WAIT_S)  # noqa: B023
    two.has("deployment/speciald", "-n", SPECIAL, state="condition=Available")
    assert text(two, SPECIAL) == "Running in guilder."
    assert variable(two, "deployment/speciald", SPECIAL) == "in prod env"
    assert one.names(f"namespace/{SPECIAL}") == []
    assert one.names(f"apiservice/{API}") == []
    two.has(f"apiservice/{API}", state="condition=Available=False")
    (reason,) = [each["reason"] for each in two.get(f"apiservice/{API}")["status"]["conditions"]]
    assert reason == "ServiceNotFound"
    # Reported: a count and a summary where there are two, the status beside where there is one.
    common.has("replicaset/commond", "-n", COMMON, state=f"jsonpath={COUNT}=2")
    assert "readyReplicas" not in common.get("replicaset/commond", "-n", COMMON).get("status", {})
    special.has("deployment/speciald", "-n", SPECIAL, state="jsonpath={.status.readyReplicas}=1")
    special.has("deployment/speciald", "-n", SPECIAL, state=f"jsonpath={COUNT}=1")
    is_reported(common, "replicasets", "commond", COMMON, 2)
    is_reported(special, "deployments", "speciald", SPECIAL, 1)
    assert summary(special, "deployments", "speciald", SPECIAL)["counts"]["destinations"] == 1
    # A parameter and a Customizer that change render anew what asks for them.
    one.label("loc-name=here")
    eventually(lambda: text(one, COMMON) == "Running in here.", "the parameter", WAIT_S)
    assert text(two, COMMON) == "Running in guilder."
    common.apply(customizer(COMMON, "now %(env)"))
    for each in (one, two):
        eventually(lambda: variable(each, "replicaset/commond", COMMON) == "now prod", "anew", WAIT_S)  # noqa: B023
    assert variable(two, "deployment/speciald", SPECIAL) == "in prod env"
    # A placement that goes takes its own along.
    common.ok("delete", "edgeplacement", "c")
    eventually(lambda: listing(one) == {"upsync": 0, "scope": {}}, "an empty list", WAIT_S)
    eventually(lambda: listing(two) == {**theirs, "upsync": 2, "scope": {}}, "the list of the other", WAIT_S)
    for each in (one, two):
        each.lost("replicaset/commond", "-n", COMMON)
        each.lost(f"configmap/{PAGE}", "-n", COMMON)
        assert each.copies("replicasets", "-n", COMMON)["items"] == []
    assert two.names("deployment/speciald", "-n", SPECIAL)
    special.ok("delete", "edgeplacement", "s")
    two.lost(f"apiservice/{API}")
    two.lost("deployment/speciald", "-n", SPECIAL)
