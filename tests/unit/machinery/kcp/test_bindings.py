"""Planning a binding: what it binds, what it keeps, and what its conditions say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from atoll.machinery.kcp.apis import apibindings
from atoll.machinery.kcp.apis.apibindings import (
    BindingContext,
    BindingStatus,
    BoundResource,
    Export,
    desired_status,
    read_export,
)
from atoll.machinery.kcp.apis.locks import Lock
from atoll.machinery.kcp.apis.naming_conflicts import Holder, Names
from atoll.machinery.meta.objects import Object
from harness.clients.api import crd
from harness.clients.exports import binding, export, resource_of, schema_of

GROUP, NOW, LATER = "shapes.example.com", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
CIRCLES = BoundResource(GROUP, "circles", "s1.circles", "u1", "v1", Names("circles", "circle", (), "Circle", "Circles"))
SQUARES = BoundResource(GROUP, "squares", "s1.squares", "u2", "v1", Names("squares", "square", (), "Square", "Squares"))
EXPORT = Export("provider", "shapes", "i" * 64, (CIRCLES, SQUARES))


def around(
    locks: dict[str, Lock] | None = None, holders: Sequence[Holder] = (), lost: Sequence[str] = ()
) -> BindingContext:
    return BindingContext(locks or {}, lambda groups: holders, lambda uid: uid not in lost)


def bound(status: Object | None = None) -> Object:
    made = binding("root:provider", "shapes")
    return {**made, "status": status} if status is not None else made


def conditions(planned: BindingStatus) -> dict[str, Any]:
    return {each["type"]: each for each in planned.status["conditions"]}


def test_all_that_is_free_is_bound_in_one_plan() -> None:
    planned = desired_status(bound(), EXPORT, around(), NOW)
    assert planned.status["phase"] == "Bound"
    assert planned.status["apiExportClusterName"] == "provider"
    assert planned.status["boundResources"][0] == {
        "group": GROUP,
        "resource": "circles",
        "storageVersions": ["v1"],
        "schema": {"name": "s1.circles", "UID": "u1", "identityHash": "i" * 64},
    }
    assert planned.locks == {f"circles.{GROUP}": Lock("shapes"), f"squares.{GROUP}": Lock("shapes")}
    assert {type: each["status"] for type, each in conditions(planned).items()} == {
        "Ready": "True",
        "APIExportValid": "True",
        "BindingUpToDate": "True",
        "InitialBindingCompleted": "True",
        "PermissionClaimsValid": "True",
        "PermissionClaimsApplied": "True",
    }
    assert planned.status["conditions"][0]["type"] == "Ready"


def test_a_binding_that_is_right_is_planned_as_it_stands() -> None:
    first = desired_status(bound(), EXPORT, around(), NOW)
    again = desired_status(bound(first.status), EXPORT, around(dict(first.locks)), LATER)
    assert again.status == first.status
    assert again.locks == first.locks


def test_a_right_binding_asks_nobody_who_holds_names() -> None:
    first = desired_status(bound(), EXPORT, around(), NOW)

    def unexpected_lookup(groups: object) -> Sequence[Holder]:
        raise AssertionError("asked")

    desired_status(bound(first.status), EXPORT, BindingContext(first.locks, unexpected_lookup, lambda uid: True), NOW)


def test_claims_are_announced_and_what_their_controller_wrote_is_kept() -> None:
    claim = {"group": "", "resource": "configmaps", "verbs": ["*"]}
    claimed = replace(EXPORT, claims=(claim,))
    planned = desired_status(bound(), claimed, around(), NOW)
    assert planned.status["exportPermissionClaims"] == [claim]
    assert "PermissionClaimsApplied" not in conditions(planned)
    theirs = {"type": "PermissionClaimsApplied", "status": "True", "lastTransitionTime": NOW}
    status = {**planned.status, "appliedPermissionClaims": [claim]}
    status["conditions"] = [*status["conditions"], theirs]
    again = desired_status(bound(status), claimed, around(), LATER).status
    assert again["appliedPermissionClaims"] == [claim]
    assert theirs in again["conditions"]


def test_before_it_was_bound_a_conflict_keeps_it_from_being_ready() -> None:
    planned = desired_status(bound(), EXPORT, around({f"circles.{GROUP}": Lock("other")}), NOW)
    assert planned.status["phase"] == "Binding"
    assert [each["resource"] for each in planned.status["boundResources"]] == ["squares"]
    told = ("Ready", "InitialBindingCompleted", "BindingUpToDate")
    assert {conditions(planned)[type]["reason"] for type in told} == {"NamingConflicts"}
    assert planned.locks[f"circles.{GROUP}"] == Lock("other")


def test_afterwards_it_only_says_that_it_is_not_up_to_date() -> None:
    first = desired_status(bound(), replace(EXPORT, resources=(CIRCLES,)), around(), NOW)
    planned = desired_status(bound(first.status), EXPORT, around({f"squares.{GROUP}": Lock("other")}), LATER)
    assert planned.status["phase"] == "Bound"
    assert conditions(planned)["Ready"]["status"] == "True"
    assert conditions(planned)["BindingUpToDate"]["reason"] == "NamingConflicts"


def test_the_lock_of_a_definition_holds_until_it_runs_out() -> None:
    for lock, phase in ((Lock(c=True), "Binding"), (Lock(c=True, e=LATER), "Binding"), (Lock(c=True, e=NOW), "Bound")):
        planned = desired_status(bound(), EXPORT, around({f"circles.{GROUP}": lock}), NOW)
        assert planned.status["phase"] == phase
    assert planned.locks[f"circles.{GROUP}"] == Lock("shapes")


def test_several_conflicts_are_all_told() -> None:
    theirs = Holder('CustomResourceDefinition "x"', GROUP, Names("x", "x", ("circle",), "Square", ""))
    message = conditions(desired_status(bound(), EXPORT, around(holders=[theirs]), NOW))["Ready"]["message"]
    assert message == (
        '[naming conflict with CustomResourceDefinition "x": spec.names.singular=circle is forbidden, '
        'naming conflict with CustomResourceDefinition "x": spec.names.kind=Square is forbidden]'
    )


def test_a_resource_moves_on_to_another_schema_and_keeps_the_versions_it_was_stored_in() -> None:
    first = desired_status(bound(), EXPORT, around(), NOW)
    later = replace(CIRCLES, schema="s2.circles", uid="u3", storage_version="v2")
    planned = desired_status(bound(first.status), replace(EXPORT, resources=(later,)), around(dict(first.locks)), LATER)
    circles, squares = planned.status["boundResources"]
    assert circles["schema"] == {"name": "s2.circles", "UID": "u3", "identityHash": "i" * 64}
    assert circles["storageVersions"] == ["v1", "v2"]
    assert squares == first.status["boundResources"][1]


def test_another_schema_of_the_same_name_is_no_news_unless_the_bound_one_is_lost() -> None:
    first = desired_status(bound(), EXPORT, around(), NOW)
    anew = replace(EXPORT, resources=(replace(CIRCLES, uid="u9"), SQUARES))
    assert desired_status(bound(first.status), anew, around(dict(first.locks)), NOW).status == first.status
    lost = desired_status(bound(first.status), anew, around(dict(first.locks), lost=["u1"]), NOW)
    assert lost.status["boundResources"][0]["schema"]["UID"] == "u9"


def test_what_is_bound_stays_without_export_without_schema_and_without_identity() -> None:
    first = desired_status(bound(), EXPORT, around(), NOW)
    for gone, reason in (
        (apibindings.not_found("root:provider", "shapes"), "APIExportNotFound"),
        (replace(EXPORT, missing=("s3.rings",)), "InternalError"),
        (replace(EXPORT, identity=""), "MissingIdentityHash"),
    ):
        planned = desired_status(bound(first.status), gone, around(dict(first.locks)), LATER)
        assert planned.status["boundResources"] == first.status["boundResources"]
        assert (planned.status["phase"], conditions(planned)["APIExportValid"]["reason"]) == ("Bound", reason)
        assert planned.locks == first.locks


def test_virtual_resources_are_stored_in_no_version() -> None:
    virtual = replace(EXPORT, resources=(replace(CIRCLES, virtual=True),))
    (item,) = desired_status(bound(), virtual, around(), NOW).status["boundResources"]
    assert item["storageVersions"] == []


def test_an_export_is_read_with_what_it_lacks() -> None:
    circles, squares = schema_of(crd("circles", GROUP)), schema_of(crd("squares", GROUP))
    circles["metadata"]["uid"] = "u1"
    obj = export("shapes", circles, squares)
    obj["spec"]["resources"][0] = resource_of(circles, virtual={"identityHash": "v"})
    known = {circles["metadata"]["name"]: circles}
    found = read_export("provider", {**obj, "status": {"identityHash": "i"}}, known.get)
    assert (found.cluster, found.name, found.identity) == ("provider", "shapes", "i")
    assert found.missing == (squares["metadata"]["name"],)
    assert [(each.resource, each.uid, each.virtual, each.names.kind) for each in found.resources] == [
        ("circles", "u1", True, circles["spec"]["names"]["kind"])
    ]
