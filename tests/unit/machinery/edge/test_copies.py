"""Copies, case by case: allocated values, merging, lists of SyncerConfigs, and what a syncer reads of them."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.edge.allocated import without_allocated
from atoll.machinery.edge.applied import is_in_force
from atoll.machinery.edge.list_edits import edited
from atoll.machinery.edge.merging import Source, merge
from atoll.machinery.edge.names import EXECUTING_COUNT, PROJECTED, SOURCES, TRANSLATOR, WHOLE, ObjectRef
from atoll.machinery.edge.placements import UpsyncSet
from atoll.machinery.edge.projection import LAST_APPLIED, bare_namespace, is_projected, portable, render
from atoll.machinery.edge.syncerconfigs import (
    ROW_BYTES,
    PartWrites,
    brief,
    digest_of,
    next_number,
    number_of,
    plan_parts,
    replaced,
    specs_of,
    unwritten_list,
)
from atoll.machinery.edge.syncset import SyncSet, sync_set
from atoll.machinery.meta.objects import Object, encode_json


def made(kind: str, spec: dict[str, Any], written: dict[str, Any], version: str = "v1") -> dict[str, Any]:
    """An object of which a manager owns these fields of the spec."""
    entry = {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": written}}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "n", "managedFields": [entry]}, "spec": spec}


PORT = {"port": 80, "protocol": "TCP", "nodePort": 30080}
PORT_KEY = 'k:{"port":80,"protocol":"TCP"}'
ADDRESSES = {
    "clusterIP": "10.0.0.9",
    "clusterIPs": ["10.0.0.9"],
    "ipFamilies": ["IPv4"],
    "ipFamilyPolicy": "SingleStack",
}


def test_addresses_and_ports_that_a_server_gave_a_service_stay_in_its_cluster() -> None:
    service = made(
        "Service", {"type": "NodePort", "ports": [PORT], **ADDRESSES}, {"f:ports": {PORT_KEY: {"f:port": {}}}}
    )
    assert without_allocated(service)["spec"] == {"type": "NodePort", "ports": [{"port": 80, "protocol": "TCP"}]}


def test_addresses_and_ports_that_somebody_wrote_go_along() -> None:
    written: dict[str, Any] = {"f:clusterIP": {}, "f:ports": {PORT_KEY: {"f:nodePort": {}}}}
    service = made("Service", {"ports": [PORT], **ADDRESSES}, written)
    assert without_allocated(service)["spec"] == {"clusterIP": "10.0.0.9", "ports": [PORT]}


def test_a_headless_service_stays_headless() -> None:
    service = made(
        "Service", {"clusterIP": "None", "clusterIPs": ["None"], "ipFamilies": ["IPv4"]}, {"f:clusterIP": {}}
    )
    assert without_allocated(service)["spec"] == {"clusterIP": "None", "clusterIPs": ["None"]}


@pytest.mark.parametrize(
    ("kind", "spec"), [("PersistentVolumeClaim", {"volumeName": "pv"}), ("Pod", {"nodeName": "node"})]
)
def test_a_binding_to_a_volume_or_node_goes_along_only_if_somebody_wrote_it(kind: str, spec: dict[str, Any]) -> None:
    (field,) = spec
    assert without_allocated(made(kind, {"x": 1, **spec}, {"f:x": {}}))["spec"] == {"x": 1}
    assert without_allocated(made(kind, {"x": 1, **spec}, {f"f:{field}": {}}))["spec"] == {"x": 1, **spec}
    by_status = made(kind, {"x": 1, **spec}, {f"f:{field}": {}})
    by_status["metadata"]["managedFields"][0]["subresource"] = "status"
    assert without_allocated(by_status)["spec"] == {"x": 1}


def test_a_job_has_its_selector_made_anew_unless_it_is_manual() -> None:
    labels = {"batch.kubernetes.io/controller-uid": "u", "job-name": "n", "app": "x"}
    spec: dict[str, Any] = {"selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}}
    spec["template"] = {"metadata": {"labels": labels}, "spec": {"containers": []}}
    owned: dict[str, Any] = {"f:template": {"f:metadata": {"f:labels": {"f:app": {}}}}}
    found = without_allocated(made("Job", spec, owned, "batch/v1"))["spec"]
    assert found == {"template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": []}}}
    manual = made("Job", {**spec, "manualSelector": True}, owned, "batch/v1")
    assert without_allocated(manual)["spec"] == {**spec, "manualSelector": True}


def test_a_job_leaves_what_was_made_of_its_uid_whoever_owns_it() -> None:
    made_labels = {"batch.kubernetes.io/controller-uid": "u", "controller-uid": "u", "job-name": "n"}
    labels = {**made_labels, "app": "x"}
    spec: dict[str, Any] = {"selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}}
    spec["template"] = {"metadata": {"labels": labels}, "spec": {"containers": []}}
    owned: dict[str, Any] = {"f:selector": {}, "f:template": {"f:metadata": {"f:labels": {}}}}
    for each in labels:
        owned["f:template"]["f:metadata"]["f:labels"][f"f:{each}"] = {}
    job = made("Job", spec, owned, "batch/v1")
    job["metadata"] |= {"uid": "u", "labels": labels}
    found = without_allocated(job)
    assert found["spec"] == {"template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": []}}}
    assert found["metadata"]["labels"] == {"app": "x"}
    job["metadata"]["uid"] = "another"
    assert without_allocated(job)["spec"] == spec, "somebody wrote it, who means other Pods"


def test_without_field_managers_every_value_counts_as_written() -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "n"}, "spec": ADDRESSES}
    assert without_allocated(service) == service


def test_an_apply_that_only_moves_items_is_not_left_out() -> None:
    names = ["a", "b"]
    owned: dict[str, Any] = {f'k:{{"name":"{name}"}}': {".": {}, "f:name": {}} for name in names}
    fields = {"f:spec": {"f:containers": owned}}
    entry = {"manager": TRANSLATOR, "operation": "Apply", "apiVersion": "v1", "fieldsV1": fields}
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {"containers": [{"name": name, "x": 1} for name in names]},
    }
    live = {**pod, "metadata": {"name": "n", "managedFields": [entry]}}
    for order in (names, names[::-1]):
        wanted = {**pod, "metadata": {"name": "n"}, "spec": {"containers": [{"name": name} for name in order]}}
        assert is_in_force(wanted, live, TRANSLATOR) == (order == names)


def test_an_empty_list_that_the_wire_shows_as_null_is_given_and_an_edit_of_it_is_not_in_force() -> None:
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"}
    given = portable({**head, "metadata": {"name": "r", "namespace": "n"}, "rules": None}, {})
    assert given["rules"] == []
    assert "rules" not in portable({**head, "kind": "Other", "metadata": {"name": "r"}}, {})

    def live(rules: object, fields: Object) -> Object:
        entry = {"manager": "m", "operation": "Apply", "apiVersion": head["apiVersion"], "fieldsV1": fields}
        return {**head, "metadata": {"name": "r", "namespace": "n", "managedFields": [entry]}, "rules": rules}

    assert is_in_force(given, live(None, {"f:rules": {}}), "m")
    assert not is_in_force(given, live([{"verbs": ["get"]}], {}), "m")


def test_a_namespace_goes_without_its_servers_finalizer() -> None:
    namespace = made("Namespace", {"finalizers": ["kubernetes"]}, {})
    assert render(namespace, {}) == {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}


def test_a_copy_names_its_sources_and_the_first_by_name_gives_the_content() -> None:
    objs = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "n"}, "data": {"a": each}} for each in "12"]
    copy = merge([Source("c2", objs[1]), Source("c1", objs[0])]).obj
    assert copy["data"] == {"a": "1"}
    assert copy["metadata"] == {"name": "n", "labels": {PROJECTED: "yes"}, "annotations": {SOURCES: "c1,c2"}}
    assert is_projected(copy)
    assert is_projected(bare_namespace("a"))
    assert not is_projected(objs[0])


def test_bookkeeping_of_other_tools_and_of_the_edge_layer_is_not_copied() -> None:
    annotations = {LAST_APPLIED: "{}", EXECUTING_COUNT: "2", "edge.kubestellar.io/downsync-overwrite": "false"}
    metadata = {"name": "n", "annotations": annotations, "finalizers": ["apis.kcp.io/apibinding-finalizer", "a.dev/f"]}
    copy = render({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}, {})
    assert copy["metadata"]["annotations"] == {"edge.kubestellar.io/downsync-overwrite": "false"}
    assert copy["metadata"]["finalizers"] == ["a.dev/f"]


OBJECTS = {
    ObjectRef("", "configmaps", "b", "y"): "v1",
    ObjectRef("", "configmaps", "b", "x"): "v1",
    ObjectRef("", "configmaps", "a", "z"): "v1",
    ObjectRef("apiregistration.k8s.io", "apiservices", "", "v1090.example.my"): "v1",
    ObjectRef("apis.kcp.io", "apibindings", "", "bind-apps"): "v1alpha1",
}


def test_a_syncerconfig_lists_objects_by_kind_and_namespace_sorted_and_no_bindings() -> None:
    ups = [UpsyncSet("g", ("cogs",), (), ("william",))] * 2
    (spec,) = specs_of(OBJECTS, ups)
    places = [{"namespace": "a", "names": ["z"]}, {"namespace": "b", "names": ["x", "y"]}]
    assert spec == {
        "namespaceScope": {},
        "namespacedObjects": [
            {"group": "", "resource": "configmaps", "apiVersion": "v1", "objectsByNamespace": places}
        ],
        "clusterScope": [
            {
                "group": "apiregistration.k8s.io",
                "resource": "apiservices",
                "apiVersion": "v1",
                "objects": ["v1090.example.my"],
            }
        ],
        "upsync": [{"apiGroup": "g", "resources": ["cogs"], "namespaces": [], "names": ["william"]}],
    }


def test_without_objects_the_spec_is_the_documented_empty_one() -> None:
    assert specs_of({}, []) == [{"namespaceScope": {}}]


def test_a_list_above_1_mib_is_split_and_the_one_is_written_last() -> None:
    many = {ObjectRef("", "configmaps", f"namespace-{n % 7}", f"{n:06}" + "x" * 60): "v1" for n in range(12_000)}
    specs = specs_of(many, [])
    assert len(specs) > 1
    assert all(len(encode_json(each)) < 1024 * 1024 for each in specs)
    writes = plan_parts(specs, [], 7)
    assert [each["metadata"]["name"] for each in writes.create][-1] == "the-one"
    assert sync_set(writes.create).objects == set(many)
    assert sync_set(writes.create[:-1]).number == 0


def test_a_list_that_takes_two_parts_is_none_of_one_more() -> None:
    few = {ObjectRef("", "configmaps", "a", f"{n}"): "v1" for n in range(3)}
    more = {**few, ObjectRef("", "configmaps", "a", "3"): "v1"}
    limit = 4 * (ROW_BYTES + len("configmapsv1a0"))
    assert [len(specs_of(more, [], each)) for each in (limit, limit - 1)] == [1, 2]
    (spec,) = specs_of(few, [])
    assert edited(spec, more, limit) == specs_of(more, [])[0]
    assert edited(spec, more, limit - 1) is None


def test_a_part_that_somebody_edits_is_written_again_with_a_higher_number_and_others_are_left_alone() -> None:
    (part,) = plan_parts(specs_of(OBJECTS, []), [], 5).create
    assert part["metadata"]["annotations"] == {WHOLE: "5"}
    own = {"metadata": {"name": "mine"}, "spec": {"clusterScope": []}}
    assert plan_parts(specs_of(OBJECTS, []), [part, own], 9).apply == ()
    edited = {**part, "spec": {"namespaceScope": {}}}
    writes = plan_parts(specs_of(OBJECTS, []), [edited, own], 3)
    assert [number_of(each) for each in writes.apply] == [6]
    assert (writes.create, writes.delete) == ((), ())


def test_a_list_is_compared_and_replaced_by_its_digest_alone() -> None:
    asked = [{"workspace": "w", "objects": []}]
    (part,) = plan_parts(specs_of(OBJECTS, [], associated=asked), [], 5).create
    seen = brief({**part, "metadata": {**part["metadata"], "uid": "u", "resourceVersion": "3"}})
    assert seen["spec"] == {"associated": asked}, "names are left out"
    assert plan_parts(specs_of(OBJECTS, [], associated=asked), [seen], 9) == PartWrites()
    (new,) = plan_parts(specs_of({}, []), [seen], 9).apply
    body = replaced(seen, new)
    assert (body["spec"], body["metadata"]["uid"], number_of(body)) == ({"namespaceScope": {}}, "u", 9)
    assert body.keys() == part.keys()
    assert digest_of(seen) == digest_of(part)


def test_the_list_of_a_new_mailbox_is_not_whole_until_it_was_written() -> None:
    unwritten = unwritten_list()
    assert not sync_set([unwritten]).number
    (written,) = plan_parts(specs_of({}, []), [unwritten], 5).apply
    assert (sync_set([written]).number, written["spec"]) == (5, unwritten["spec"])


def test_numbers_rise_also_when_the_mailbox_is_lost_and_nonsense_counts_as_none() -> None:
    assert next_number([], 1_000) == 1_000
    assert number_of({"metadata": {"annotations": {WHOLE: "-3"}}}) == 0
    assert number_of({"metadata": {"annotations": {WHOLE: "٣"}}}) == 0


def entry(**fields: object) -> dict[str, Any]:
    return {"group": "", "resource": "things", "apiVersion": "v1", **fields}


def listing(**spec: object) -> SyncSet:
    return sync_set([{"metadata": {"name": "manual"}, "spec": spec}])


def thing(namespace: str, name: str) -> ObjectRef:
    return ObjectRef("", "things", namespace, name)


def test_wildcards_and_absent_lists_list_all_of_a_kind_and_empty_ones_none() -> None:
    absent, empty = listing(clusterScope=[entry()]), listing(clusterScope=[entry(objects=[])])
    assert absent.lists(thing("", "x"))
    assert not absent.lists(thing("a", "x"))
    assert not empty.lists(thing("", "x"))
    scope = listing(namespaceScope={"namespaces": ["a"], "resources": [entry()]})
    assert scope.lists(thing("a", "x"))
    assert not scope.lists(thing("b", "x"))
    every = listing(namespacedObjects=[entry(objectsByNamespace=[{"namespace": "*", "names": ["x"]}])])
    assert every.lists(thing("b", "x"))
    assert not every.lists(thing("b", "y"))
    assert not every.lists(thing("", "x"))
    assert every.versions == {("", "things"): "v1"}


def test_an_older_edgesyncconfig_lists_objects_by_kind_both_ways() -> None:
    row = {"group": "g", "version": "v1", "name": "x", "namespace": "a"}
    spec = {
        "downSyncedResources": [{"kind": "Cog", **row}, {"kind": "Unserved", **row}],
        "upSyncedResources": [{"kind": "Cog", **row, "name": "*"}],
    }
    found = sync_set([], [{"metadata": {"name": "e"}, "spec": spec}], {("g", "Cog"): "cogs"})
    assert found.objects == {ObjectRef("g", "cogs", "a", "x")}
    assert found.protected == frozenset()
    assert found.comes_up(ObjectRef("g", "cogs", "a", "y"))
    assert not found.comes_up(ObjectRef("g", "cogs", "b", "y"))


def test_what_comes_up_and_what_collectors_ask_is_divided_by_its_bytes() -> None:
    limit, sets = 4096, [UpsyncSet("", ("*",), ("n" * 200,), (f"name-{number}",)) for number in range(100)]
    asked = [{"workspace": "w" * 200, "objects": [{"resource": f"kind-{number}"}]} for number in range(100)]
    specs = specs_of({}, sets, limit, asked)
    assert max(len(encode_json(spec)) for spec in specs) < limit + ROW_BYTES
    for field, rows in (("upsync", sets), ("associated", asked)):
        assert sum(len(spec.get(field, ())) for spec in specs) == len(rows)
