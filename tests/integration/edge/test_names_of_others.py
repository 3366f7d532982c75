"""A tenant that names what belongs to others learns nothing of it and changes nothing: it is as if it were not there.

Each field that refers to something is given the name of what another tenant has, and one that nobody has. What the
tenant sees of both is the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import yaml

from atoll.machinery.edge.names import REPORT_NAMESPACE
from harness.clients.api import MERGE, Api, Object, configmap, crd, define, eventually
from harness.environment import ROOT
from harness.servers.edge_service import GROUP, an_object, location
from harness.servers.mutant_shard import MutantShard
from integration.edge.named_fields import ANNOTATIONS, COLLECTORS, COUNT, FIELDS, NAMELESS, NOBODYS, THEIRS, at_one
from integration.edge.placed import (
    CONFIGMAPS,
    LOCATIONS,
    PLACEMENTS,
    TARGETS,
    condition,
    inventory,
    is_projected,
    is_whole,
    mailboxes,
    new_workload,
    phase,
)

__all__ = ["inventory", "mailboxes"]
WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
CUSTOMIZERS = f"{GROUP}/namespaces/default/customizers"
SLICES = f"{GROUP}/singleplacementslices"
NAMESPACES, EVENTS = "/api/v1/namespaces", "/api/v1/namespaces/default/events"


def leaves(schema: Any, path: str = "") -> Iterator[str]:
    """Yield the fields of a schema that have no fields."""
    while schema.get("type") == "array":
        schema = schema["items"]
    for name, each in schema.get("properties", {}).items():
        yield from leaves(each, f"{path}.{name}" if path else name)
    if "properties" not in schema:
        yield path


@pytest.mark.parametrize("kind", FIELDS)
def test_each_field_of_a_spec_names_nothing_or_is_tried(kind: str) -> None:
    file = ROOT / f"schemas/edge/edge.kubestellar.io_{kind.lower()}s.yaml"
    (version,) = yaml.safe_load(file.read_text())["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert set(leaves(spec)) == FIELDS[kind][1].keys() | NAMELESS[kind]


class Others:
    """A workspace for workloads and an inventory of others, where what there is has THEIRS in its name and labels."""

    def __init__(self, root: Api) -> None:
        self.workload, self.inventory = new_workload(root), new_inventory(root)
        define(self.workload, crd(f"{THEIRS}s", f"{THEIRS}.example.com"))
        labels = {THEIRS: THEIRS}
        for path, body in (
            (NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": THEIRS, "labels": labels}}),
            (CONFIGMAPS, configmap(THEIRS, labels=labels)),
            (f"{GROUP}/namespaces/{THEIRS}/customizers", {**an_object("Customizer", THEIRS), "replacements": []}),
            (CUSTOMIZERS, {**an_object("Customizer", THEIRS), "replacements": []}),
            (PLACEMENTS, an_object("EdgePlacement", THEIRS, at_one(apiGroup="", objectNames=[THEIRS]))),
            (COLLECTORS, an_object("StatusCollector", THEIRS, COUNT)),
        ):
            self.workload.post(path, body)
        # Nobody else may place there.
        self.inventory.delete(f"{RBAC}/clusterrolebindings/edge-place")
        target = an_object("SyncTarget", THEIRS, None, id=THEIRS, **labels)
        self.target = self.inventory.post(TARGETS, target).json["metadata"]
        self.inventory.post(LOCATIONS, location(THEIRS, **labels))
        self.cluster = self.target["annotations"]["kcp.io/cluster"]
        name, home = f"{self.cluster}-mb-{self.target['uid']}", root.at("root:espw")
        eventually(lambda: phase(home, name) == "Ready", "the mailbox of the others")
        self.mailbox = root.at(f"root:espw:{name}")
        eventually(lambda: is_whole(self.mailbox), "its list")
        eventually(lambda: is_projected(self.workload, THEIRS), "their placement")
        home.close()

    def content(self) -> list[Object]:
        """What they have, without revisions, and without what the service reports."""
        mailbox = [(self.mailbox, path) for path in (CONFIGMAPS, f"{GROUP}/syncerconfigs")]
        inventory = [(self.inventory, path) for path in (LOCATIONS, TARGETS)]
        own = [CONFIGMAPS, CUSTOMIZERS, PLACEMENTS, COLLECTORS, SLICES, EVENTS, NAMESPACES]
        places = [*mailbox, *inventory, *((self.workload, path) for path in own)]
        found = [without_moments(each) for api, path in places for each in api.get(path).json["items"]]
        return [{**each, "status": None} for each in found if each["metadata"]["name"] != REPORT_NAMESPACE]

    def close(self) -> None:
        for path in (LOCATIONS, TARGETS):
            self.inventory.delete(path)
        self.workload.delete(PLACEMENTS)


def new_inventory(root: Api) -> Api:
    spec = {"type": {"name": "edge-inventory", "path": "root:espw"}}
    head = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"generateName": "inventory-"}}
    name = root.post(WORKSPACES, {**head, "spec": spec}).json["metadata"]["name"]
    eventually(lambda: phase(root, name) == "Ready", "the inventory is ready")
    return root.at(f"root:{name}")


def without_moments(obj: Object) -> Object:
    """An object without what differs from one to the next: uids, revisions, times."""
    metadata = {key: obj["metadata"].get(key) for key in ("name", "labels", "annotations", "finalizers", "generation")}
    rows = (obj.get("status") or {}).get("conditions", ())
    conditions = [{key: value for key, value in row.items() if key != "lastTransitionTime"} for row in rows]
    kept = {key: obj.get(key) for key in ("spec", "data", "destinations", "replacements", "reason", "message")}
    return {**kept, "metadata": metadata, "status": {**(obj.get("status") or {}), "conditions": conditions}}


@pytest.fixture(scope="module")
def others(root: Api, mailboxes: dict[str, Api]) -> Iterator[Others]:
    found = Others(root)
    yield found
    found.close()


@pytest.fixture(scope="module")
def tenant(root: Api) -> Iterator[Api]:
    """The workspace of who tries."""
    here = new_workload(root)
    yield here
    for path in (PLACEMENTS, LOCATIONS, COLLECTORS):
        here.delete(path)


def seen(api: Api, path: str) -> str:
    """What a tenant sees of an object, with the Events about it; the names are made equal."""
    obj = api.get(path).json
    about = [
        each for each in api.get(EVENTS).json["items"] if each["involvedObject"].get("uid") == obj["metadata"]["uid"]
    ]
    events = [(each["reason"], each["message"]) for each in about if not is_passing(each["message"])]
    return json.dumps([without_moments(obj), sorted(events)], sort_keys=True).replace(THEIRS, NOBODYS)


def is_passing(message: str) -> bool:
    """Whether an Event tells of what is so on the course to the end: that may be missed, and names what is usable."""
    return message == "one" or message.endswith("was not read yet")


def are_alike(api: Api, one: str, other: str) -> bool:
    return seen(api, one) == seen(api, other)


def is_worked_off(api: Api, path: str) -> bool:
    """Whether the controllers have said of an object what they have to say."""
    status = api.get(path).json.get("status") or {}
    reasons = {each["type"]: each.get("reason") for each in status.get("conditions", ())}
    is_placed = reasons.keys() >= {"Resolved", "Projected"} and reasons["Projected"] != "InProgress"
    return is_placed or bool({"observedGeneration", "instances"} & status.keys())


def check_same(tenant: Api, pairs: list[tuple[str, str]]) -> None:
    """Check that what is said in the end of both objects of each pair is the same."""
    for pair in pairs:
        for path in pair:
            eventually(partial(is_worked_off, tenant, path), f"{path} is worked off")
    for theirs, nobodys in pairs:
        eventually(partial(are_alike, tenant, theirs, nobodys), f"{theirs} is as {nobodys}")


@pytest.mark.parametrize("kind", FIELDS)
def test_what_a_field_names_of_others_is_as_if_it_were_not_there(tenant: Api, others: Others, kind: str) -> None:
    path, fields = FIELDS[kind]
    before, pairs = others.content(), []
    for number, (field, spec) in enumerate(fields.items()):
        names = [f"n{number}-{name}" for name in (THEIRS, NOBODYS)]
        answers = [
            tenant.send("POST", path, an_object(kind, own, spec(name)))
            for own, name in zip(names, (THEIRS, NOBODYS), strict=True)
        ]
        assert [each.code for each in answers] == [201, 201], (field, answers[0].body)
        pairs.append((f"{path}/{names[0]}", f"{path}/{names[1]}"))
    check_same(tenant, pairs)
    assert others.content() == before


def test_what_an_annotation_names_of_others_is_as_if_it_were_not_there(tenant: Api, others: Others) -> None:
    before, pairs = others.content(), []
    for number, (key, value) in enumerate(ANNOTATIONS.items()):
        for name in (THEIRS, NOBODYS):
            own = f"a{number}-{name}"
            annotation = {key if "/" in key else "edge.kubestellar.io/customizer": value(name)}
            tenant.post(CONFIGMAPS, configmap(own, {"k": "1"}, annotations=annotation))
            tenant.post(PLACEMENTS, an_object("EdgePlacement", own, at_one(apiGroup="", objectNames=[own])))
        pairs.append((f"{PLACEMENTS}/a{number}-{THEIRS}", f"{PLACEMENTS}/a{number}-{NOBODYS}"))
    check_same(tenant, pairs)
    eventually(lambda: condition(tenant, f"a0-{THEIRS}").get("reason") == "ObjectsRefused", "no Customizer is found")
    assert others.content() == before


def forged(others: Others, owner: Object, **changed: str) -> Object:
    """A slice that sends a placement to the edge cluster of the others."""
    row = {"cluster": others.cluster, "locationName": THEIRS, "syncTargetName": THEIRS}
    reference = {"apiVersion": owner["apiVersion"], "kind": "EdgePlacement", "controller": True}
    slice = an_object("SinglePlacementSlice", f"{owner['metadata']['name']}-2")
    slice["metadata"]["ownerReferences"] = [{**reference, **{key: owner["metadata"][key] for key in ("name", "uid")}}]
    return {**slice, "destinations": [{**row, "syncTargetUID": others.target["uid"], **changed}]}


def test_nobody_sends_a_placement_to_what_others_have(edge: MutantShard, tenant: Api, others: Others) -> None:
    tenant.post(CONFIGMAPS, configmap("sent"))
    spec = {"downsync": [{"apiGroup": "", "objectNames": ["sent"]}]}
    owner = tenant.post(PLACEMENTS, an_object("EdgePlacement", "forger", spec)).json
    eventually(lambda: is_worked_off(tenant, f"{PLACEMENTS}/forger"), "it has its slice")
    before = others.content()
    destinations = forged(others, owner)["destinations"]
    changes: tuple[dict[str, str], ...] = (
        {},
        {"syncTargetUID": NOBODYS},
        {"cluster": NOBODYS},
        {"locationName": NOBODYS},
    )
    answers = [tenant.send("POST", SLICES, forged(others, owner, **each)) for each in changes]
    answers.append(tenant.send("PATCH", f"{SLICES}/forger", {"destinations": destinations}, kind=MERGE))
    text = "only the edge service says where a placement goes"
    assert {(each.code, each.message.partition(": ")[2]) for each in answers} == {(403, text)}
    assert others.content() == before
    with edge.without("import atoll.shard.admission.placementslices as p\np._gives_destinations = lambda *both: False"):
        assert tenant.send("POST", SLICES, forged(others, owner)).code == 201, "the guard is missed"
