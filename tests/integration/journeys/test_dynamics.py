"""What changes after a workload was placed: labels, content, edits at the edge, objects that come up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from atoll.machinery.meta.objects import Object
from harness.clients.api import crd, eventually
from integration.journeys.fleet import INVENTORY, WAIT_S, Edge, Side, configmap, deployment, namespace, placement

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

AVAILABLE = "condition=Available"
COUNT = "jsonpath={{.metadata.annotations.kubestellar\\.io/executing-count}}={}"


def everything(where: str) -> list[Object]:
    """The tests that select a namespace's content."""
    return [{"namespaces": [where]}]


def content(edge: Edge, name: str, where: str) -> object:
    found = edge.ok("get", "configmap", name, "-n", where, "--ignore-not-found", "-o", "jsonpath={.data.k}")
    return found


def holds(edge: Edge, name: str, where: str, value: str) -> None:
    """Wait until a ConfigMap has a value."""
    eventually(lambda: content(edge, name, where) == value, f"{name} has {value}", WAIT_S)


def test_workloads_follow_labels_and_each_workspace_has_its_own(
    fleet: list[Edge], workspace: Callable[[str], Side]
) -> None:
    one, two, _ = fleet
    one.label("stage=prod", "special=no")
    two.label("stage=prod", "special=yes")
    common, special = workspace("wmw-c"), workspace("wmw-s")
    common.apply(
        namespace("commonstuff"),
        deployment("commond", "commonstuff", "ReplicaSet"),
        placement("c", {"stage": "prod"}, *everything("commonstuff"), wantSingletonReportedState=True),
    )
    special.apply(
        namespace("specialstuff"),
        deployment("speciald", "specialstuff"),
        placement(
            "s", {"stage": "prod", "special": "yes"}, *everything("specialstuff"), wantSingletonReportedState=True
        ),
    )
    two.has("deployment/speciald", "-n", "specialstuff", state=AVAILABLE)
    for each in (one, two):
        each.has("replicaset/commond", "-n", "commonstuff", state="jsonpath={.status.availableReplicas}=1")
    assert one.names("namespace/specialstuff") == []
    # Reported: a count where there are two, the status where there is one.
    common.has("replicaset/commond", "-n", "commonstuff", state=COUNT.format(2))
    assert "readyReplicas" not in common.get("replicaset/commond", "-n", "commonstuff").get("status", {})
    special.has("deployment/speciald", "-n", "specialstuff", state="jsonpath={.status.readyReplicas}=1")
    special.has("deployment/speciald", "-n", "specialstuff", state=COUNT.format(1))
    one.label("special=yes")
    one.has("deployment/speciald", "-n", "specialstuff", state=AVAILABLE)
    special.has("deployment/speciald", "-n", "specialstuff", state=COUNT.format(2))
    one.label("stage=dev")
    one.lost("replicaset/commond", "-n", "commonstuff")
    one.lost("deployment/speciald", "-n", "specialstuff")
    common.has("replicaset/commond", "-n", "commonstuff", state="jsonpath={.status.readyReplicas}=1")
    one.label("stage=prod")
    one.has("replicaset/commond", "-n", "commonstuff")
    common.ok("delete", "edgeplacement", "c")
    for each in (one, two):
        each.lost("replicaset/commond", "-n", "commonstuff")
    common.lost("singleplacementslices")
    two.has("deployment/speciald", "-n", "specialstuff", state=AVAILABLE)
    special.ok("delete", "edgeplacement", "s")
    for each in (one, two):
        each.lost("deployment/speciald", "-n", "specialstuff")


def test_edits_and_deletions_reach_the_edge_and_edits_there_are_reverted_unless_they_may_stay(
    fleet: list[Edge], workspace: Callable[[str], Side]
) -> None:
    one = fleet[0]
    one.label("edits=yes")
    here, overwrite = workspace("edits"), "edge.kubestellar.io/downsync-overwrite"
    where = "edited"
    here.apply(namespace(where), placement("p", {"edits": "yes"}, *everything(where)))
    here.apply(configmap("kept", where, {"k": "1"}), configmap("free", where, {"k": "1"}, **{overwrite: "false"}))
    for name in ("kept", "free"):
        holds(one, name, where, "1")
        one.ok("patch", "configmap", name, "-n", where, "--type=merge", "-p", '{"data":{"k":"edge"}}')
    holds(one, "kept", where, "1")
    here.ok("patch", "configmap", "kept", "-n", where, "--type=merge", "-p", '{"data":{"k":"2"}}')
    holds(one, "kept", where, "2")
    assert content(one, "free", where) == "edge"
    # Back to overwriting, and away from it again.
    here.ok("annotate", "configmap", "free", "-n", where, "--overwrite", f"{overwrite}=true")
    holds(one, "free", where, "1")
    here.ok("annotate", "configmap", "free", "-n", where, "--overwrite", f"{overwrite}=false")
    mark = r"jsonpath={.metadata.annotations.edge\.kubestellar\.io/downsync-overwrite}=false"
    one.has("configmap/free", "-n", where, state=mark)
    one.ok("patch", "configmap", "free", "-n", where, "--type=merge", "-p", '{"data":{"k":"edge"}}')
    here.ok("delete", "configmap", "kept", "free", "-n", where)
    one.lost("configmap/kept", "-n", where)
    assert content(one, "free", where) == "edge"


def test_objects_of_the_edge_come_up_and_go_as_they_do_there(
    fleet: list[Edge], workspace: Callable[[str], Side]
) -> None:
    one, where = fleet[0], "orbital"
    one.label("reports=yes")
    here = workspace("reports")
    sets: Object = {"apiGroup": "group1.example.com", "resources": ["sprockets"], "namespaces": [where]}
    definition: Object = {"apiGroup": "apiextensions.k8s.io", "resources": ["customresourcedefinitions"]}
    here.apply(crd("sprockets", "group1.example.com"))
    here.apply(placement("p", {"reports": "yes"}, definition, upsync=[{**sets, "names": ["george"]}]))
    one.has("crd/sprockets.group1.example.com", state="condition=Established")
    sprocket: Object = {"apiVersion": "group1.example.com/v1", "kind": "Sprocket", "spec": {"colour": "red"}}
    sprocket |= {"metadata": {"name": "george", "namespace": where}}
    one.apply(namespace(where), sprocket, {**sprocket, "metadata": {"name": "other", "namespace": where}})

    def colours() -> list[str]:
        found = one.copies("sprockets.group1.example.com", "-n", where)["items"]
        return [each["spec"]["colour"] for each in found]

    eventually(lambda: colours() == ["red"], "it came up", WAIT_S)
    one.ok("patch", "sprocket", "george", "-n", where, "--type=merge", "-p", '{"spec":{"colour":"blue"}}')
    eventually(lambda: colours() == ["blue"], "its edit came up", WAIT_S)
    one.ok("delete", "sprocket", "george", "-n", where)
    eventually(lambda: colours() == [], "it went", WAIT_S)
    one.ok("delete", "namespace", where)


def test_a_removed_location_leaves_its_workload_and_its_old_syncer_goes_before_it_is_registered_anew(
    register: Callable[..., list[Edge]], workspace: Callable[[str], Side], in_center: Callable[[str], Side]
) -> None:
    (edge,), root = register("krone"), in_center("root")
    edge.label("removed=soon")
    here, where = workspace("removal"), "remaining"
    here.apply(namespace(where), placement("p", {"removed": "soon"}, *everything(where)))
    here.apply(configmap("c", where, {"k": "1"}), deployment("web", where))
    edge.has("deployment/web", "-n", where, state=AVAILABLE)
    older, mailbox = edge.manifest.rename(edge.manifest.with_name("older.yaml")), edge.mailbox().rpartition(":")[2]
    root.ok("kubestellar", "remove", "location", *INVENTORY, edge.name)
    here.has("edgeplacement/p", state="jsonpath={.status.destinations.total}=0")
    in_center("root:espw").lost("workspaces.tenancy.kcp.io", mailbox)
    # Nobody tells the cluster.
    assert content(edge, "c", where) == "1"
    assert edge.names("deployment/web", "-n", where)
    # Registered anew it has two, of which the newer waits for the older to go.
    edge.register("fleet=all", "removed=soon")
    here.apply(configmap("d", where, {"k": "1"}))
    holds(edge, "d", where, "1")
    here.ok("patch", "configmap", "c", "-n", where, "--type=merge", "-p", '{"data":{"k":"2"}}')
    eventually(lambda: "runs at this cluster too" in synced(here), "it is told", WAIT_S)
    assert content(edge, "c", where) == "1"
    edge.ok("delete", "--ignore-not-found", "-f", str(older), timeout_s=WAIT_S)
    holds(edge, "c", where, "2")
    here.has("edgeplacement/p", state="jsonpath={.status.destinations.upToDate}=1")


def synced(here: Side) -> str:
    """What the placement says of its destinations."""
    return here.ok("get", "edgeplacement", "p", "-o", "jsonpath={.status.conditions[?(@.type=='Synced')].message}")
