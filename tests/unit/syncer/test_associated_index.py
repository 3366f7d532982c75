"""What belongs to a placed object does not depend on the order in which both came, and costs less than 1 KB each."""

from __future__ import annotations

import gc
import random
import tracemalloc

from atoll.machinery.edge.associated import Rule
from atoll.machinery.edge.associated_states import Observed
from atoll.machinery.edge.json_paths import parse
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.meta.objects import Object
from atoll.syncer.associated_index import AssociatedIndex, ties_of

WEB = ObjectRef("apps", "deployments", "shop", "web")
PODS = Rule("", "pods", owners=(("apps", "replicasets"),))
SLICES = Rule("discovery.k8s.io", "endpointslices", label="kubernetes.io/service-name")
VOLUMES = Rule("", "persistentvolumes", field=parse("$.spec.volumeName"))


def owned(name: str, uid: str, *owners: str, namespace: str = "shop", **labels: str) -> Object:
    metadata = {"name": name, "namespace": namespace, "uid": uid, "labels": labels}
    return {"metadata": {**metadata, "ownerReferences": [{"uid": each} for each in owners]}}


def put(index: AssociatedIndex, group: str, resource: str, obj: Object) -> set[ObjectRef]:
    metadata = obj["metadata"]
    ref = ObjectRef(group, resource, metadata["namespace"], metadata["name"])
    return index.put(ref, Observed(ref, metadata["uid"], "Running"), ties_of(ref, obj, (SLICES.label,)))


def names(index: AssociatedIndex, placed: ObjectRef, live: Object, rule: Rule) -> list[str]:
    return sorted(each.ref.name for each in index.members(placed, live, rule))


def test_an_owner_may_come_before_or_after_what_it_owns() -> None:
    live = owned("web", "d")
    events = [
        ("apps", "replicasets", owned("web-1", "r1", "d")),
        ("apps", "replicasets", owned("web-2", "r2", "d")),
        ("apps", "replicasets", owned("other", "r3", "e")),
        ("", "pods", owned("a", "p1", "r1")),
        ("", "pods", owned("b", "p2", "r2")),
        ("", "pods", owned("c", "p3", "r3")),
        ("", "pods", owned("direct", "p4", "d")),
    ]
    for seed in range(20):
        index, concerned = AssociatedIndex(), set[ObjectRef]()
        shuffled = [*events, None]
        random.Random(seed).shuffle(shuffled)
        for each in shuffled:
            if each is None:
                index.place(WEB, live, [PODS])
                # It is looked at once it is known.
                concerned = {WEB}
            else:
                concerned |= put(index, *each)
        assert names(index, WEB, live, PODS) == ["a", "b"], "what a Deployment owns itself is none of its ReplicaSets'"
        assert concerned == {WEB}
        assert index.put(ObjectRef("", "pods", "shop", "a"), None) == {WEB}
        assert index.put(ObjectRef("", "pods", "shop", "c"), None) == set()
        assert names(index, WEB, live, PODS) == ["b"]
        index.place(WEB, None, [])
        assert put(index, "", "pods", owned("d", "p5", "r1")) == set(), "nobody looks for it any more"


def test_a_label_relates_within_a_namespace() -> None:
    index, service = AssociatedIndex(), ObjectRef("", "services", "shop", "web")
    live = owned("web", "s")
    index.place(service, live, [SLICES])
    labels = {SLICES.label: "web"}
    assert put(index, SLICES.group, SLICES.resource, owned("web-x", "1", **labels)) == {service}
    assert put(index, SLICES.group, SLICES.resource, owned("web-y", "2", namespace="other", **labels)) == set()
    assert names(index, service, live, SLICES) == ["web-x"]


def test_a_field_names_what_has_no_namespace_or_the_same() -> None:
    index, claim = AssociatedIndex(), ObjectRef("", "persistentvolumeclaims", "shop", "data")
    live = {**owned("data", "c"), "spec": {"volumeName": "disk"}}
    index.place(claim, live, [VOLUMES])
    assert put(index, "", "persistentvolumes", owned("disk", "v", namespace="")) == {claim}
    assert put(index, "", "persistentvolumes", owned("tape", "w", namespace="")) == set()
    assert names(index, claim, live, VOLUMES) == ["disk"]


def test_an_associated_object_costs_less_than_a_kilobyte() -> None:
    index = AssociatedIndex()
    index.place(WEB, owned("web", "d"), [PODS])
    put(index, "apps", "replicasets", owned("web-1", "r1", "d"))
    gc.collect()
    tracemalloc.start()
    for number in range(2000):
        # Each with strings of its own, as what is decoded has.
        name, uid = f"web-5d59d67564-{number:05}", f"7fa454a0-0988-44e6-a793-{number:012}"
        put(index, "", "pods", owned(name, uid, "".join(["r", "1"]), app="".join(["we", "b"])))
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used / 2000 < 1024
    assert len(names(index, WEB, owned("web", "d"), PODS)) == 2000
