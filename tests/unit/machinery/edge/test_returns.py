"""What comes back from the edge, case by case: status, the singleton status of a workspace, and upsynced objects."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.edge.applied import is_in_force
from atoll.machinery.edge.names import EDGE_REVISION, EXECUTING_COUNT, SYNCED_BY, TRANSLATOR, UPSYNCED, ObjectRef
from atoll.machinery.edge.returns import is_behind, is_older, singleton_configurations, status_return
from atoll.machinery.edge.syncset import SyncSet, sync_set
from atoll.machinery.edge.upsync import Bounds, DeleteCopy, PutCopy, plan_upsync, upsync_copy
from atoll.machinery.meta.objects import Object, annotations_of

DEPLOYMENT = ObjectRef("apps", "deployments", "a", "d")
COG = ObjectRef("x.dev", "cogs", "a", "c")


def obj(ref: ObjectRef, revision: str = "5", **fields: Any) -> Object:
    metadata = {"name": ref.name, "namespace": ref.namespace, "uid": f"uid-{ref.name}", "resourceVersion": revision}
    return {"apiVersion": "v1", "kind": "Kind", "metadata": metadata | fields.pop("metadata", {}), **fields}


def test_status_comes_back_when_it_differs_for_the_revision_that_was_read() -> None:
    live, held = obj(DEPLOYMENT, "12", status={"ready": 1}), obj(DEPLOYMENT, "3")
    write = status_return(DEPLOYMENT, live, held, "edge")
    assert write is not None
    assert (write.resource_version, write.status, write.edge_revision) == ("3", {"ready": 1}, "edge/12")
    reported = {"annotations": {EDGE_REVISION: "edge/11"}}
    same = obj(DEPLOYMENT, "4", status={"ready": 1}, metadata=reported)
    assert status_return(DEPLOYMENT, live, same, "edge") is None
    assert status_return(DEPLOYMENT, obj(DEPLOYMENT), held, "edge") is None
    assert status_return(DEPLOYMENT, live, None, "edge") is None


def test_the_first_report_is_written_also_if_the_mailbox_says_the_same_of_itself() -> None:
    live, held = obj(DEPLOYMENT, "12", status={"phase": "Pending"}), obj(DEPLOYMENT, "3", status={"phase": "Pending"})
    write = status_return(DEPLOYMENT, live, held, "edge")
    assert write is not None
    assert (write.status, write.edge_revision) == ({"phase": "Pending"}, "edge/12")


def test_status_never_becomes_older_and_another_edge_cluster_begins_anew() -> None:
    held = obj(DEPLOYMENT, metadata={"annotations": {EDGE_REVISION: "edge/100"}})
    for revision, edge, expected in (("99", "edge", True), ("101", "edge", False), ("99", "other", False)):
        write = status_return(DEPLOYMENT, obj(DEPLOYMENT, revision, status={"ready": 1}), held, edge)
        assert write is not None
        assert is_behind(write, held) == expected
    assert is_older("edge/9", "edge/10")
    assert not is_older("edge/9", "")


@pytest.mark.parametrize(
    "ref",
    [
        ObjectRef("", "namespaces", "", "a"),
        ObjectRef("apiextensions.k8s.io", "customresourcedefinitions", "", "cogs.x.dev"),
    ],
)
def test_status_of_definitions_and_namespaces_stays_at_the_edge(ref: ObjectRef) -> None:
    assert status_return(ref, obj(ref, status={"x": 1}), obj(ref), "edge") is None


def test_singleton_status_is_that_of_the_only_copy_and_goes_with_the_wish_or_the_number() -> None:
    source, held = obj(DEPLOYMENT), obj(DEPLOYMENT, status={"ready": 1})
    base = {"apiVersion": "v1", "kind": "Kind", "metadata": {"name": "d", "namespace": "a"}}
    one = singleton_configurations(source, 1, held)
    assert annotations_of(one.metadata) == {EXECUTING_COUNT: "1"}
    assert one.status == {**base, "status": {"ready": 1}}
    two = singleton_configurations(source, 2, held)
    assert annotations_of(two.metadata) == {EXECUTING_COUNT: "2"}
    assert two.status == base
    none = singleton_configurations(source, None, held)
    assert none.metadata == none.status == base


def test_what_was_never_applied_needs_no_write_to_be_taken_back() -> None:
    source = obj(DEPLOYMENT)
    configuration = singleton_configurations(source, None, None).status
    assert is_in_force(configuration, source, TRANSLATOR, subresource="status")
    entry = {"manager": TRANSLATOR, "operation": "Apply", "apiVersion": "v1", "subresource": "status"}
    source["metadata"]["managedFields"] = [{**entry, "fieldsV1": {"f:status": {"f:ready": {}}}}]
    assert not is_in_force(configuration, source, TRANSLATOR, subresource="status")
    applied = {**configuration, "status": {"ready": 1}}
    assert is_in_force(applied, {**source, "status": {"ready": 1, "other": 2}}, TRANSLATOR, subresource="status")


def carried(*sets: Object, is_whole: bool = True) -> SyncSet:
    metadata = {"name": "the-one", "annotations": {"edge.kubestellar.io/whole": "1"} if is_whole else {}}
    return sync_set([{"metadata": metadata, "spec": {"upsync": list(sets)}}])


COGS = {"apiGroup": "x.dev", "resources": ["cogs"], "namespaces": ["a"], "names": ["*"]}
ALL = {"apiGroup": "", "resources": ["*"], "namespaces": ["*"], "names": ["*"]}


def held_of(ref: ObjectRef, live: Object, revision: str = "70") -> Object:
    """The copy in the mailbox, as its server answers it."""
    copy = upsync_copy(ref, live, "edge")
    return {**copy, "metadata": {**copy["metadata"], "uid": f"mailbox-{ref.name}", "resourceVersion": revision}}


def test_an_object_comes_up_with_its_status_and_without_what_binds_it_to_its_cluster() -> None:
    owner = [{"apiVersion": "v1", "kind": "K", "name": "o", "uid": "o"}]
    metadata = {
        "ownerReferences": owner,
        "finalizers": ["f"],
        "managedFields": [{}],
        "labels": {SYNCED_BY: "x", "l": "1"},
    }
    live = obj(COG, "9", spec={"a": 1}, status={"b": 2}, metadata=metadata)
    (write,) = plan_upsync(carried(COGS), {COG: live}, {}, "edge").writes
    assert isinstance(write, PutCopy)
    assert (write.obj["spec"], write.obj["status"], write.resource_version) == ({"a": 1}, {"b": 2}, "")
    annotations = {UPSYNCED: "Kind/a/c", EDGE_REVISION: "edge/9"}
    assert write.obj["metadata"] == {"name": "c", "namespace": "a", "labels": {"l": "1"}, "annotations": annotations}


def test_an_equal_copy_is_not_written_a_newer_one_is_and_an_older_one_never() -> None:
    held = {COG: held_of(COG, obj(COG, "9", spec={"a": 1}))}
    assert not plan_upsync(carried(COGS), {COG: obj(COG, "12", spec={"a": 1})}, held, "edge").writes
    (write,) = plan_upsync(carried(COGS), {COG: obj(COG, "12", spec={"a": 2})}, held, "edge").writes
    assert isinstance(write, PutCopy)
    assert write.resource_version == "70"
    assert not plan_upsync(carried(COGS), {COG: obj(COG, "8", spec={"a": 0})}, held, "edge").writes


def test_a_copy_goes_with_its_object_or_with_its_set_but_not_while_the_lists_change() -> None:
    live = {COG: obj(COG)}
    held = {COG: held_of(COG, live[COG])}
    deletion = (DeleteCopy(COG, "mailbox-c", "70"),)
    assert plan_upsync(carried(COGS), {}, held, "edge").writes == deletion
    assert plan_upsync(carried(), live, held, "edge").writes == deletion
    assert plan_upsync(carried(is_whole=False), live, held, "edge").writes == ()
    dying = {**held[COG], "metadata": {**held[COG]["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert plan_upsync(carried(COGS), {}, {COG: dying}, "edge").writes == ()


def test_an_object_of_the_mailbox_that_did_not_come_up_is_neither_written_nor_deleted() -> None:
    for marks in ({}, {UPSYNCED: "Kind/a/other"}):
        held = {COG: obj(COG, metadata={"annotations": marks})}
        found = plan_upsync(carried(COGS), {COG: obj(COG)}, held, "edge")
        assert (found.writes, found.taken) == ((), (COG,))
        assert plan_upsync(carried(), {}, held, "edge").writes == ()


@pytest.mark.parametrize(
    "ref",
    [
        ObjectRef("", "namespaces", "", "a"),
        ObjectRef("", "events", "a", "e"),
        ObjectRef("", "nodes", "", "n"),
        ObjectRef("", "configmaps", "a", "kube-root-ca.crt"),
        ObjectRef("", "configmaps", "kubestellar-report", "r"),
    ],
)
def test_definitions_kinds_of_the_center_and_system_objects_never_come_up(ref: ObjectRef) -> None:
    assert not plan_upsync(carried(ALL), {ref: obj(ref)}, {}, "edge").writes
    account = ObjectRef("", "serviceaccounts", "a", "mine")
    assert plan_upsync(carried(ALL), {account: obj(account)}, {}, "edge").writes


def test_beyond_the_bounds_what_is_up_already_stays_and_the_rest_is_reported() -> None:
    refs = [ObjectRef("x.dev", "cogs", "a", f"n{number}") for number in range(4)]
    live = {ref: obj(ref, spec={"text": "x" * 400}) for ref in refs}
    held = {refs[3]: held_of(refs[3], live[refs[3]])}
    for bounds in (Bounds(objects=2), Bounds(size_bytes=1_500)):
        found = plan_upsync(carried(COGS), live, held, "edge", bounds)
        assert [each.ref for each in found.writes] == [refs[0]]
        assert found.left_out == (refs[1], refs[2])
