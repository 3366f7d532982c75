"""A syncer's plans, case by case: order, adoption, overwriting, deletions, failures, conversions, denatured kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from atoll.machinery.edge.applied import digest
from atoll.machinery.edge.conversions import renamed
from atoll.machinery.edge.denaturing import IDENTITY, is_denatured, served_type, stored_type
from atoll.machinery.edge.failures import MAX_MESSAGE, MAX_ROWS, Failure, error_rows, next_failure
from atoll.machinery.edge.names import ADOPTED, DOWNSYNCED, OVERWRITE, SYNCED_BY, ObjectRef
from atoll.machinery.edge.plan import (
    Action,
    Annotate,
    Apply,
    Delete,
    SyncState,
    Wanted,
    acknowledged,
    adopting,
    may_delete,
    plan,
)
from atoll.machinery.edge.syncerconfigs import plan_parts, specs_of
from atoll.machinery.edge.syncset import sync_set
from atoll.machinery.meta.names import CORE, ResourceType
from atoll.machinery.meta.objects import Object, annotations_of, labels_of

ME = "target-uid"
STATE = SyncState(ME)
CONFIG_MAP = ObjectRef("", "configmaps", "a", "x")
NAMESPACE = ObjectRef("", "namespaces", "", "a")
CRD = ObjectRef("apiextensions.k8s.io", "customresourcedefinitions", "", "cogs.x.dev")
COG = ObjectRef("x.dev", "cogs", "a", "c")


def obj(ref: ObjectRef, kind: str, **fields: Any) -> Object:
    metadata = {"name": ref.name, "uid": f"uid-{ref.name}", "resourceVersion": "5"}
    metadata |= {"namespace": ref.namespace} if ref.namespace else {}
    version = f"{ref.group}/v1" if ref.group else "v1"
    return {"apiVersion": version, "kind": kind, "metadata": metadata | fields.pop("metadata", {}), **fields}


def made(ref: ObjectRef, kind: str, annotation: str = DOWNSYNCED, **fields: Any) -> Object:
    """An object at the edge with the marks of this syncer."""
    annotations = {annotation: f"{kind}/{ref.namespace}/{ref.name}", **fields.pop("annotations", {})}
    return obj(ref, kind, metadata={"labels": {SYNCED_BY: ME}, "annotations": annotations}, **fields)


def wanted(objects: Mapping[ObjectRef, Object], listed: list[ObjectRef] | None = None) -> Wanted:
    parts = plan_parts(specs_of(dict.fromkeys(objects if listed is None else listed, "v1"), []), [], 7).create
    return Wanted(objects, sync_set(parts), True)


def namespaces(*refs: ObjectRef) -> dict[ObjectRef, Object]:
    return {ref: obj(ref, "Namespace") for ref in refs}


DEFINITION: dict[str, Any] = {"spec": {"group": "x.dev", "names": {"plural": "cogs"}}}
ESTABLISHED: dict[str, Any] = {**DEFINITION, "status": {"conditions": [{"type": "Established", "status": "True"}]}}
OBJECTS = {
    COG: obj(COG, "Cog"),
    CONFIG_MAP: obj(CONFIG_MAP, "ConfigMap", data={"a": "b"}),
    NAMESPACE: obj(NAMESPACE, "Namespace"),
    CRD: obj(CRD, "CustomResourceDefinition", **DEFINITION),
}


def refs(actions: list[Action]) -> list[ObjectRef]:
    return [each.ref for each in actions]


def test_definitions_and_namespaces_come_first_and_objects_wait_until_their_definition_is_established() -> None:
    assert refs(plan(wanted(OBJECTS), {}, STATE, 0)) == [CRD, NAMESPACE, CONFIG_MAP]
    live = {CRD: obj(CRD, "CustomResourceDefinition", **ESTABLISHED)}
    assert COG in refs(plan(wanted(OBJECTS), live, STATE, 0))


def test_deletions_go_the_other_way_round_and_wait_for_what_is_in_namespaces_and_definitions() -> None:
    live = {
        CRD: made(CRD, "CustomResourceDefinition", **ESTABLISHED),
        NAMESPACE: made(NAMESPACE, "Namespace"),
        COG: made(COG, "Cog"),
        CONFIG_MAP: made(CONFIG_MAP, "ConfigMap"),
    }
    first = plan(wanted({}), live, STATE, 0)
    assert set(refs(first)) == {COG, CONFIG_MAP}
    assert first[0] == Delete(first[0].ref, f"uid-{first[0].ref.name}", "5")
    assert refs(plan(wanted({}), {CRD: live[CRD], NAMESPACE: live[NAMESPACE]}, STATE, 0)) == [NAMESPACE, CRD]


def test_a_definition_of_another_scope_replaces_ours_once_nothing_of_its_kind_is_left() -> None:
    scoped = {"group": "x.dev", "names": {"plural": "cogs"}, "scope": "Cluster"}
    definition = obj(CRD, "CustomResourceDefinition", spec=scoped)
    wide = ObjectRef("x.dev", "cogs", "", "w")
    want = wanted({CRD: definition, wide: obj(wide, "Cog")})
    ours = {CRD: made(CRD, "CustomResourceDefinition", **ESTABLISHED)}
    assert plan(want, {**ours, COG: made(COG, "Cog")}, STATE, 0) == [Delete(COG, "uid-c", "5")]
    assert plan(want, ours, STATE, 0) == [Delete(CRD, "uid-cogs.x.dev", "5")]
    assert plan(replace(want, is_complete=False), ours, STATE, 0) == [], "only under a whole list"
    going = {CRD: {**ours[CRD], "metadata": {**ours[CRD]["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}}
    assert plan(want, going, STATE, 0) == []
    assert refs(plan(want, {}, STATE, 0)) == [CRD]
    assert refs(plan(want, {**ours, COG: obj(COG, "Cog")}, STATE, 0)) == [CRD], "what others have keeps it: refused"
    theirs = {CRD: made(CRD, "CustomResourceDefinition", ADOPTED, **ESTABLISHED)}
    assert refs(plan(want, theirs, STATE, 0)) == [CRD], "what was there before never goes"


def test_a_namespace_stays_for_others_objects_but_not_for_those_that_every_namespace_has() -> None:
    ca = ObjectRef("", "configmaps", "a", "kube-root-ca.crt")
    live = {NAMESPACE: made(NAMESPACE, "Namespace"), ca: obj(ca, "ConfigMap")}
    assert refs(plan(wanted({}), live, STATE, 0)) == [NAMESPACE]
    assert not plan(wanted({}), {**live, CONFIG_MAP: obj(CONFIG_MAP, "ConfigMap")}, STATE, 0)


def test_a_needed_namespace_is_made_without_a_mark_and_kept() -> None:
    first, second = plan(wanted({CONFIG_MAP: OBJECTS[CONFIG_MAP]}), {}, STATE, 0)
    assert isinstance(first, Apply)
    assert first.ref == NAMESPACE
    assert "annotations" not in first.configuration["metadata"]
    assert second.ref == CONFIG_MAP
    assert not plan(wanted({}), namespaces(NAMESPACE), STATE, 0)


def test_what_existed_before_is_adopted_once_and_stays_on_withdrawal() -> None:
    sought, live = wanted({CONFIG_MAP: OBJECTS[CONFIG_MAP]}), namespaces(NAMESPACE)
    (new,) = plan(sought, live, STATE, 0)
    assert isinstance(new, Apply)
    assert (new.is_new, new.adopts) == (True, False)
    live[CONFIG_MAP] = obj(CONFIG_MAP, "ConfigMap", data={"a": "old"})
    (adopted,) = plan(sought, live, STATE, 0)
    assert isinstance(adopted, Apply)
    assert (adopted.is_new, adopted.adopts) == (False, True)
    assert annotations_of(adopted.configuration) == {ADOPTED: "ConfigMap/a/x"}
    assert adopting(new.configuration) == adopted.configuration
    live[CONFIG_MAP] = made(CONFIG_MAP, "ConfigMap", ADOPTED, data={"a": "edited"})
    (again,) = plan(sought, live, STATE, 0)
    assert isinstance(again, Apply)
    assert not again.adopts
    assert not plan(wanted({}), live, STATE, 0)


@pytest.mark.parametrize(
    "marks",
    [
        {"labels": {SYNCED_BY: "another"}, "annotations": {DOWNSYNCED: "ConfigMap/a/x"}},
        {"labels": {SYNCED_BY: ME}, "annotations": {DOWNSYNCED: "Deployment/a/parent"}},
        {"annotations": {DOWNSYNCED: "ConfigMap/a/x"}},
    ],
    ids=["of another syncer", "copied from a parent", "without label"],
)
def test_what_this_syncer_did_not_make_is_not_deleted(marks: Object) -> None:
    live = {CONFIG_MAP: obj(CONFIG_MAP, "ConfigMap", metadata=marks)}
    assert not plan(wanted({}), live, STATE, 0)
    assert plan(wanted({}), {CONFIG_MAP: made(CONFIG_MAP, "ConfigMap")}, STATE, 0)


def test_an_older_list_deletes_nothing_after_a_newer_one() -> None:
    sought = wanted({})
    state = acknowledged(sought, STATE)
    assert state.number == 7
    assert may_delete(sought, state)
    assert not may_delete(sought, replace(state, number=8))
    assert acknowledged(replace(sought, is_complete=False), STATE).number == 0


def test_an_object_that_the_list_names_but_the_mailbox_lacks_is_left_alone() -> None:
    live = {CONFIG_MAP: made(CONFIG_MAP, "ConfigMap")}
    assert not plan(wanted({}, [CONFIG_MAP]), live, STATE, 0)


def test_an_object_under_deletion_is_neither_applied_nor_deleted_and_holds_up_what_is_in_it() -> None:
    going = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    sought = wanted({CONFIG_MAP: OBJECTS[CONFIG_MAP]})
    assert not plan(sought, {**namespaces(NAMESPACE), CONFIG_MAP: obj(CONFIG_MAP, "ConfigMap", **going)}, STATE, 0)
    assert not plan(sought, {NAMESPACE: obj(NAMESPACE, "Namespace", **going)}, STATE, 0)
    dying = made(CONFIG_MAP, "ConfigMap")
    dying["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not plan(wanted({}), {CONFIG_MAP: dying}, STATE, 0)


def test_without_overwriting_an_object_is_made_once_annotated_and_then_left_to_the_edge() -> None:
    kept = obj(CONFIG_MAP, "ConfigMap", metadata={"annotations": {OVERWRITE: "false"}}, data={"a": "b"})
    sought, live = wanted({CONFIG_MAP: kept}), namespaces(NAMESPACE)
    (new,) = plan(sought, live, STATE, 0)
    assert isinstance(new, Apply)
    assert annotations_of(new.configuration)[OVERWRITE] == "false"
    live[CONFIG_MAP] = made(CONFIG_MAP, "ConfigMap", data={"a": "edge"})
    assert plan(sought, live, STATE, 0) == [Annotate(CONFIG_MAP, "uid-x", {OVERWRITE: "false"})]
    live[CONFIG_MAP] = made(CONFIG_MAP, "ConfigMap", annotations={OVERWRITE: "false"}, data={"a": "edge"})
    assert not plan(sought, live, STATE, 0)
    assert not plan(wanted({}), live, STATE, 0)
    (back,) = plan(wanted({CONFIG_MAP: OBJECTS[CONFIG_MAP]}), live, STATE, 0)
    assert isinstance(back, Apply)
    assert annotations_of(back.configuration)[OVERWRITE] == "true"


def test_owners_get_the_uid_that_they_have_at_the_edge_and_keys_of_the_center_stay() -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "uid-x"}
    child = ObjectRef("", "secrets", "a", "s")
    labels = {"edge.kubestellar.io/projected": "yes", "app": "x"}
    secret = obj(child, "Secret", metadata={"ownerReferences": [owner], "labels": labels})
    live = namespaces(NAMESPACE)
    live[CONFIG_MAP] = made(CONFIG_MAP, "ConfigMap")
    live[CONFIG_MAP]["metadata"]["uid"] = "edge-uid"
    actions = plan(wanted({child: secret, CONFIG_MAP: OBJECTS[CONFIG_MAP]}), live, STATE, 0)
    (found,) = [each.configuration for each in actions if isinstance(each, Apply) and each.ref == child]
    assert [each["uid"] for each in found["metadata"]["ownerReferences"]] == ["edge-uid"]
    assert labels_of(found) == {"app": "x", SYNCED_BY: ME}


def test_bindings_control_kinds_and_system_objects_never_reach_the_edge() -> None:
    rows = {
        ObjectRef("apis.kcp.io", "apibindings", "", "b"): "APIBinding",
        ObjectRef("edge.kubestellar.io", "syncerconfigs", "", "s"): "SyncerConfig",
        ObjectRef("", "serviceaccounts", "a", "default"): "ServiceAccount",
    }
    objects = {ref: obj(ref, kind) for ref, kind in rows.items()}
    spec: dict[str, Any] = {
        "clusterScope": [{"group": ref.group, "resource": ref.resource, "apiVersion": "v1"} for ref in rows]
    }
    spec["namespacedObjects"] = [
        {**row, "objectsByNamespace": [{"namespace": "a", "names": ["*"]}]} for row in spec["clusterScope"]
    ]
    carried = sync_set([{"metadata": {"name": "manual"}, "spec": spec}])
    assert all(carried.lists(ref) for ref in rows)
    assert not plan(Wanted(objects, carried, True), namespaces(NAMESPACE), STATE, 0)


def failing(count: int = 1, attempt: str = "d", at_s: float = 100.0) -> Failure:
    return Failure("apply", "Invalid", "no", attempt, count, at_s)


def test_a_failing_object_backs_off_and_a_new_version_of_it_is_tried_at_once() -> None:
    delays = []
    for count in (1, 2, 3, 20, 10_000):
        failure = failing(count)
        delays.append(next(s for s in range(400) if failure.is_due(CONFIG_MAP, "d", 100.0 + s)))
    assert delays == sorted(delays)
    assert 0 < delays[0] <= 1
    assert 225 <= delays[-1] <= 300
    assert failing(20).is_due(CONFIG_MAP, "other", 100.0)
    assert failing(20).is_due(CONFIG_MAP, "d", 99.0), "a clock that was set back"


def test_a_failing_object_holds_up_no_other_and_keeps_what_is_there() -> None:
    other = ObjectRef("", "configmaps", "a", "y")
    sought = wanted({CONFIG_MAP: OBJECTS[CONFIG_MAP], other: obj(other, "ConfigMap")})
    live = {**namespaces(NAMESPACE), CONFIG_MAP: made(CONFIG_MAP, "ConfigMap", data={"a": "last good"})}
    first = plan(sought, live, STATE, 100.0)
    assert refs(first) == [CONFIG_MAP, other]
    assert isinstance(first[0], Apply)
    failures = {CONFIG_MAP: failing(attempt=digest(first[0].configuration))}
    assert refs(plan(sought, live, replace(STATE, failures=failures), 100.1)) == [other]
    assert refs(plan(sought, live, replace(STATE, failures=failures), 102.0)) == [CONFIG_MAP, other]
    stuck = replace(STATE, failures={CONFIG_MAP: failing(attempt="")})
    assert not plan(wanted({}), live, stuck, 100.1)


def test_failures_are_counted_by_reason_and_reported_newest_first_within_bounds() -> None:
    second = next_failure(failing(), failing(at_s=101.0))
    assert (second.count, second.at_s) == (2, 101.0)
    assert next_failure(second, replace(failing(), reason="Conflict")).count == 1
    assert next_failure(None, failing()).count == 1
    many = {replace(CONFIG_MAP, name=f"n{n}"): failing(at_s=float(n)) for n in range(MAX_ROWS + 9)}
    rows = error_rows({**many, CONFIG_MAP: replace(failing(at_s=1e9), message="x" * 9_000)})
    assert len(rows) == MAX_ROWS
    assert rows[0]["time"] == "2001-09-09T01:46:40Z"
    assert len(rows[0]["message"]) == MAX_MESSAGE
    assert list(rows[0])[:5] == ["group", "resource", "namespace", "name", "operation"]
    assert list(rows[0])[5:] == ["reason", "message", "time", "count"]


def test_conversions_rename_kinds_and_groups_and_definitions_follow_their_name() -> None:
    denatured = ObjectRef(CRD.group, CRD.resource, "", "cogs.x.dev.denatured")
    spec = {"group": "x.dev.denatured", "names": {"plural": "cogs"}}
    objects = {denatured: obj(denatured, "CustomResourceDefinition", spec=spec), CONFIG_MAP: OBJECTS[CONFIG_MAP]}
    crd = {"kind": "CustomResourceDefinition", "group": CRD.group, "version": "v1"}
    rules = [
        {"upstream": {**crd, "name": denatured.name}, "downstream": {**crd, "name": "cogs.x.dev"}},
        {
            "upstream": {"kind": "ConfigMap", "group": "", "version": "v1", "name": "*"},
            "downstream": {"kind": "Cog", "group": "x.dev", "version": "v2", "name": "*"},
        },
    ]
    resources = {(CRD.group, "CustomResourceDefinition"): CRD.resource, ("x.dev", "Cog"): "cogs"}
    found = renamed(objects, [{"spec": {"conversions": rules}}], resources)
    assert found.objects[CRD]["spec"]["group"] == "x.dev"
    cog = ObjectRef("x.dev", "cogs", "a", "x")
    assert (found.objects[cog]["apiVersion"], found.objects[cog]["kind"]) == ("x.dev/v2", "Cog")
    assert found.origins == {CRD: denatured, cog: CONFIG_MAP}
    assert renamed(objects, [{"spec": {"conversions": rules}}], {}).objects == objects


def test_denatured_kinds_have_an_identity_of_their_own_and_a_workspaces_own_are_not_shown() -> None:
    role = ResourceType("rbac.authorization.k8s.io", "roles")
    stored = stored_type(role)
    assert stored == ResourceType("rbac.authorization.k8s.io", "roles", IDENTITY)
    assert stored_type(stored) == stored
    assert served_type(stored) == role
    assert served_type(role) is None
    bound = ResourceType("", "limitranges", "0" * 64)
    assert served_type(bound) is None
    assert served_type(stored_type(bound)) == ResourceType("", "limitranges", CORE)
    deployment = ResourceType("apps", "deployments", "0" * 64)
    assert stored_type(deployment) == served_type(deployment) == deployment
    assert not is_denatured("apps", "deployments")
