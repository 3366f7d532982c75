"""SyncerConfigs and EdgeSyncConfigs that somebody writes into a mailbox carry what they name, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from harness.clients.api import Object, crd, eventually
from integration.journeys.fleet import WAIT_S, Edge, Side, configmap, namespace

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

GROUP = "lists.example.com"
CONFIGMAPS: Object = {"group": "", "resource": "configmaps", "apiVersion": "v1"}
DEFINITIONS: Object = {
    "group": "apiextensions.k8s.io",
    "resource": "customresourcedefinitions",
    "apiVersion": "v1",
    "objects": [f"boats.{GROUP}"],
}
BOATS: Object = {"group": GROUP, "resource": "boats", "apiVersion": "v1"}


def written(kind: str, name: str, **spec: object) -> Object:
    head = {"apiVersion": "edge.kubestellar.io/v2alpha1", "kind": kind, "metadata": {"name": name}}
    return {**head, "spec": spec}


def boat(name: str, where: str, kind: str = "Boat") -> Object:
    metadata = {"name": name, "namespace": where}
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata, "spec": {"colour": "red"}}


def without_status(plural: str) -> Object:
    """A definition whose status is a field as any other."""
    found = crd(plural, GROUP)
    for version in found["spec"]["versions"]:
        del version["subresources"]
    return found


@pytest.fixture
def mailbox(edge: Edge, in_center: Callable[[str], Side]) -> Iterator[Side]:
    """The mailbox of the cluster. The lists of a test are gone afterwards, and with them what they carried."""
    here = in_center(edge.mailbox())
    yield here
    here.ok("delete", "edgesyncconfigs", "--all")
    here.ok("delete", "syncerconfig", "by-hand", "--ignore-not-found")


def configmaps(edge: Edge, where: str) -> list[str]:
    names = edge.names("configmaps", "-n", where)
    return [each.removeprefix("configmap/") for each in names if not each.endswith("kube-root-ca.crt")]


def carries(edge: Edge, where: str, *names: str) -> None:
    """Wait until these are all ConfigMaps of a namespace at the edge."""
    eventually(lambda: configmaps(edge, where) == list(names), f"{where} has {names}", WAIT_S)


def test_a_list_carries_names_namespaces_and_kinds_and_what_leaves_it_goes(edge: Edge, mailbox: Side) -> None:
    for where in ("wide", "narrow", "unlisted"):
        mailbox.apply(namespace(where), *(configmap(name, where, {"k": name}) for name in ("a", "b")))
    mailbox.apply(crd("boats", GROUP))
    mailbox.ok("wait", "--for=condition=Established", f"crd/boats.{GROUP}")
    mailbox.apply(boat("b", "narrow"))
    wide = {"namespaces": ["wide"], "resources": [CONFIGMAPS]}
    narrow = [{**CONFIGMAPS, "objectsByNamespace": [{"namespace": "narrow", "names": ["a"]}]}]
    fleet = [{**BOATS, "objectsByNamespace": [{"namespace": "narrow", "names": ["b"]}]}]
    whole = written(
        "SyncerConfig", "by-hand", namespaceScope=wide, namespacedObjects=[*narrow, *fleet], clusterScope=[DEFINITIONS]
    )
    mailbox.apply(whole)
    carries(edge, "wide", "a", "b")
    carries(edge, "narrow", "a")
    edge.has(f"crd/boats.{GROUP}", state="condition=Established")
    edge.has(f"boats.{GROUP}/b", "-n", "narrow")
    assert edge.names("namespace/unlisted") == []
    # What comes later into a namespace that is listed whole goes too.
    mailbox.apply(configmap("c", "wide", {"k": "c"}))
    carries(edge, "wide", "a", "b", "c")
    # The list shrinks, and the object, its definition and its kind go in the mailbox too.
    mailbox.apply(written("SyncerConfig", "by-hand", namespacedObjects=narrow))
    mailbox.ok("delete", "crd", f"boats.{GROUP}")
    carries(edge, "wide")
    edge.lost(f"boats.{GROUP}", "-A")
    edge.lost(f"crd/boats.{GROUP}")
    carries(edge, "narrow", "a")
    mailbox.ok("delete", "syncerconfig", "by-hand")
    carries(edge, "narrow")


def test_an_older_list_carries_by_kind_and_reports_with_and_without_a_status_of_its_own(
    edge: Edge, mailbox: Side
) -> None:
    where = "older"
    mailbox.apply(namespace(where), crd("boats", GROUP), without_status("rafts"), crd("cogs", GROUP))
    definitions = [f"{each}.{GROUP}" for each in ("boats", "rafts", "cogs")]
    for each in definitions:
        mailbox.ok("wait", "--for=condition=Established", f"crd/{each}")
    mailbox.apply(*(boat(name, where) for name in ("one", "two")), boat("raft", where, "Raft"))
    own: Object = {"group": GROUP, "version": "v1", "namespace": where, "name": "*"}
    crds: Object = {"group": "apiextensions.k8s.io", "version": "v1", "kind": "CustomResourceDefinition"}
    down = [
        {"group": "", "version": "v1", "kind": "Namespace", "name": where},
        *({**crds, "name": each} for each in definitions),
        {**own, "kind": "Boat"},
        {**own, "kind": "Raft"},
    ]
    mailbox.apply(
        written("EdgeSyncConfig", "older", downSyncedResources=down, upSyncedResources=[{**own, "kind": "Cog"}])
    )
    for each in definitions:
        edge.has(f"crd/{each}", state="condition=Established")
    for name in (f"boats.{GROUP}/one", f"boats.{GROUP}/two", f"rafts.{GROUP}/raft"):
        edge.has(name, "-n", where)
    # Reported, and reported again after a change.
    for count in (1, 2):
        status = f'{{"status":{{"replicas":{count}}}}}'
        words = ("-n", where, "--type=merge", "-p", status)
        edge.ok("patch", f"boats.{GROUP}", "one", "--subresource=status", *words)
        edge.ok("patch", f"rafts.{GROUP}", "raft", *words)
        for name in (f"boats.{GROUP}/one", f"rafts.{GROUP}/raft"):
            mailbox.has(name, "-n", where, state=f"jsonpath={{.status.replicas}}={count}")
    # What comes up, and its edit. What the mailbox had under such a name stays.
    mailbox.apply(boat("taken", where, "Cog"))
    edge.apply(boat("taken", where, "Cog"), boat("up", where, "Cog"))
    mailbox.has(f"cogs.{GROUP}/up", "-n", where)
    for name in ("up", "taken"):
        edge.ok("patch", f"cogs.{GROUP}", name, "-n", where, "--type=merge", "-p", '{"spec":{"colour":"blue"}}')
    mailbox.has(f"cogs.{GROUP}/up", "-n", where, state="jsonpath={.spec.colour}=blue")
    assert mailbox.get(f"cogs.{GROUP}/taken", "-n", where)["spec"]["colour"] == "red"
    mailbox.ok("delete", "edgesyncconfig", "older")
    mailbox.lost(f"cogs.{GROUP}/up", "-n", where)
    edge.lost(f"crd/boats.{GROUP}")
    edge.lost(f"crd/rafts.{GROUP}")
    mailbox.ok("delete", "crd", *definitions)
