"""Garbage collection over the wire: kinds sealed at rest, references that stop blocking, policies of finalizers, uids.

Tests run on ConfigMaps and on Secrets, as only Secrets are sealed.
"""

from __future__ import annotations

from typing import Any

import pytest

from harness.clients.api import CRDS, STRATEGIC, Api, configmap, crd, define, eventually

Object = dict[str, Any]
IN = "/api/v1/namespaces/default"
CONFIGMAPS, SECRETS = f"{IN}/configmaps", f"{IN}/secrets"
CIRCLES = "/apis/shapes.example.com/v1/namespaces/default/circles"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
HOLD = "example.com/hold"
BOTH = pytest.mark.parametrize("path", [CONFIGMAPS, SECRETS], ids=["configmaps", "secrets"])


def thing(path: str, name: str, *references: Object, **metadata: Any) -> Object:
    """A ConfigMap or a Secret, with its owners."""
    kind = "Secret" if path == SECRETS else "ConfigMap"
    metadata = {"name": name, "ownerReferences": list(references), **metadata}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata}


def ref(owner: Object, *, block: bool = True, **other: Any) -> Object:
    """A reference to an owner."""
    metadata = owner["metadata"]
    found = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": metadata["name"], "uid": metadata["uid"]}
    return {**found, "blockOwnerDeletion": block, **other}


def delete(api: Api, path: str, policy: str) -> None:
    api.delete(path, {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy})


def gone(api: Api, path: str) -> None:
    eventually(lambda: api.get(path, expect=0).code == 404, f"{path} gone")


def is_deleting(api: Api, path: str) -> bool:
    return bool(api.get(path).json["metadata"].get("deletionTimestamp"))


def owners(api: Api, path: str) -> list[str]:
    return [each["name"] for each in api.get(path).json["metadata"].get("ownerReferences") or []]


# --- kinds that are sealed at rest ---


@BOTH
def test_what_an_object_owned_goes_after_it(api: Api, path: str) -> None:
    owner = api.post(path, thing(path, "owner")).json
    api.post(CONFIGMAPS, thing(CONFIGMAPS, "one", ref(owner)))
    api.post(SECRETS, thing(SECRETS, "two", ref(owner, block=False)))
    delete(api, f"{path}/owner", "Background")
    gone(api, f"{CONFIGMAPS}/one")
    gone(api, f"{SECRETS}/two")


@BOTH
def test_a_foreground_deletion_ends_with_a_blocking_dependent(api: Api, path: str) -> None:
    owner = api.post(CONFIGMAPS, thing(CONFIGMAPS, "owner")).json
    api.post(path, thing(path, "plain", ref(owner)))
    api.post(path, thing(path, "held", ref(owner), finalizers=[HOLD]))
    delete(api, f"{CONFIGMAPS}/owner", "Foreground")
    gone(api, f"{path}/plain")
    eventually(lambda: is_deleting(api, f"{path}/held"), "the held one under deletion")
    assert is_deleting(api, f"{CONFIGMAPS}/owner")
    api.patch(f"{path}/held", {"metadata": {"finalizers": None}})
    gone(api, f"{CONFIGMAPS}/owner")


# --- references that stop blocking by an update ---


@BOTH
def test_a_dependent_with_another_owner_leaves_the_one_that_goes(api: Api, path: str) -> None:
    going, staying = (api.post(CONFIGMAPS, thing(CONFIGMAPS, name)).json for name in ("going", "staying"))
    api.post(path, thing(path, "shared", ref(going), ref(staying)))
    delete(api, f"{CONFIGMAPS}/going", "Foreground")
    gone(api, f"{CONFIGMAPS}/going")
    assert owners(api, f"{path}/shared") == ["staying"]


@BOTH
@pytest.mark.parametrize("cleared", [True, False], ids=["cleared", "removed"])
def test_a_held_dependent_may_be_taken_from_an_owner_that_waits(api: Api, path: str, cleared: bool) -> None:
    owner = api.post(CONFIGMAPS, thing(CONFIGMAPS, "owner")).json
    api.post(path, thing(path, "held", ref(owner), finalizers=[HOLD]))
    delete(api, f"{CONFIGMAPS}/owner", "Foreground")
    eventually(lambda: is_deleting(api, f"{path}/held"), "the held one under deletion")
    references = [ref(owner, block=False)] if cleared else None
    api.patch(f"{path}/held", {"metadata": {"ownerReferences": references}})
    gone(api, f"{CONFIGMAPS}/owner")
    assert is_deleting(api, f"{path}/held")


def test_a_circle_of_owners_goes(api: Api) -> None:
    one = api.post(CONFIGMAPS, thing(CONFIGMAPS, "one")).json
    two = api.post(CONFIGMAPS, thing(CONFIGMAPS, "two", ref(one))).json
    api.patch(f"{CONFIGMAPS}/one", {"metadata": {"ownerReferences": [ref(two)]}})
    delete(api, f"{CONFIGMAPS}/one", "Foreground")
    gone(api, f"{CONFIGMAPS}/one")
    gone(api, f"{CONFIGMAPS}/two")


# --- policies that finalizers ask for ---


def own(api: Api, path: str, *references: Object) -> None:
    """Add owners to an object."""
    api.patch(path, {"metadata": {"ownerReferences": list(references)}}, STRATEGIC)


def delete_in_foreground(api: Api, path: str, uid: str) -> None:
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"}
    api.delete(path, {**options, "preconditions": {"uid": uid}})


def test_a_deletion_is_not_blocked_by_a_circle_of_dependents(api: Api) -> None:
    """Garbage collector should not be blocked by dependency circle."""
    made = [api.post(CONFIGMAPS, thing(CONFIGMAPS, f"pod{number}")).json for number in (1, 2, 3)]
    for number, owner in ((1, made[2]), (2, made[0]), (3, made[1])):
        own(api, f"{CONFIGMAPS}/pod{number}", ref(owner, controller=True))
    delete_in_foreground(api, f"{CONFIGMAPS}/pod1", made[0]["metadata"]["uid"])
    for number in (1, 2, 3):
        gone(api, f"{CONFIGMAPS}/pod{number}")


@pytest.mark.long
def test_dependents_with_a_valid_owner_and_one_that_waits_for_them_stay(api: Api) -> None:
    """Garbage collector should not delete dependents that have both valid owner and owner that's waiting for
    dependents to be deleted."""
    goes, stays = (api.post(SECRETS, thing(SECRETS, name)).json for name in ("goes", "stays"))
    for number in range(40):
        api.post(CONFIGMAPS, thing(CONFIGMAPS, f"pod-{number}", ref(goes, controller=True), labels={"of": "both"}))
    for number in range(20):
        own(api, f"{CONFIGMAPS}/pod-{number}", ref(stays, block=False))
    delete_in_foreground(api, f"{SECRETS}/goes", goes["metadata"]["uid"])
    gone(api, f"{SECRETS}/goes")
    left = api.get(f"{CONFIGMAPS}?labelSelector=of%3Dboth").json["items"]
    assert sorted(each["metadata"]["name"] for each in left) == sorted(f"pod-{number}" for number in range(20))
    for each in left:
        assert "deletionTimestamp" not in each["metadata"]
        assert [owner["name"] for owner in each["metadata"]["ownerReferences"]] == ["stays"]


@BOTH
def test_what_asks_to_be_orphaned_is_when_a_cascade_deletes_its_owner(api: Api, path: str) -> None:
    top = api.post(CONFIGMAPS, thing(CONFIGMAPS, "top")).json
    middle = api.post(path, thing(path, "middle", ref(top), finalizers=["orphan"])).json
    api.post(path, thing(path, "leaf", ref(middle)))
    delete(api, f"{CONFIGMAPS}/top", "Background")
    gone(api, f"{path}/middle")
    assert owners(api, f"{path}/leaf") == []


@BOTH
@pytest.mark.parametrize("begins", ["cascade", "delete"])
def test_what_asks_for_foreground_deletion_waits_for_its_dependents(api: Api, path: str, begins: str) -> None:
    top = api.post(CONFIGMAPS, thing(CONFIGMAPS, "top")).json
    middle = api.post(path, thing(path, "middle", ref(top))).json
    api.put(f"{path}/middle", {**middle, "metadata": {**middle["metadata"], "finalizers": ["foregroundDeletion"]}})
    api.post(path, thing(path, "leaf", ref(middle), finalizers=[HOLD]))
    api.delete(f"{CONFIGMAPS}/top" if begins == "cascade" else f"{path}/middle")
    eventually(lambda: is_deleting(api, f"{path}/leaf"), "the leaf under deletion")
    assert is_deleting(api, f"{path}/middle")
    api.patch(f"{path}/leaf", {"metadata": {"finalizers": None}})
    gone(api, f"{path}/middle")


def test_a_policy_of_the_request_comes_before_that_of_finalizers(api: Api) -> None:
    top = api.post(CONFIGMAPS, thing(CONFIGMAPS, "top", finalizers=["orphan"])).json
    api.post(CONFIGMAPS, thing(CONFIGMAPS, "leaf", ref(top)))
    delete(api, f"{CONFIGMAPS}/top", "Foreground")
    gone(api, f"{CONFIGMAPS}/leaf")
    gone(api, f"{CONFIGMAPS}/top")


# --- owners are found by their uid ---


@BOTH
def test_an_owner_made_again_under_its_name_keeps_nothing_of_the_old_one(api: Api, path: str) -> None:
    old = api.post(path, thing(path, "owner", finalizers=[HOLD])).json
    api.post(CONFIGMAPS, thing(CONFIGMAPS, "of-old", ref(old)))
    api.delete(f"{path}/owner", {"propagationPolicy": "Background"})
    api.patch(f"{path}/owner", {"metadata": {"finalizers": None}})
    new = api.post(path, thing(path, "owner")).json
    api.post(CONFIGMAPS, thing(CONFIGMAPS, "of-new", ref(new)))
    # A late dependent with the uid of the old owner finds the new owner under that name.
    api.post(CONFIGMAPS, thing(CONFIGMAPS, "late", ref(old)))
    gone(api, f"{CONFIGMAPS}/of-old")
    gone(api, f"{CONFIGMAPS}/late")
    assert owners(api, f"{CONFIGMAPS}/of-new") == ["owner"]


def test_an_owner_waits_for_a_dependent_that_names_it_wrongly(api: Api) -> None:
    owner = api.post(CONFIGMAPS, thing(CONFIGMAPS, "owner")).json
    api.post(SECRETS, thing(SECRETS, "held", ref(owner), finalizers=[HOLD]))
    delete(api, f"{CONFIGMAPS}/owner", "Foreground")
    eventually(lambda: is_deleting(api, f"{SECRETS}/held"), "the held one under deletion")
    wrong = {"metadata": {"ownerReferences": [ref(owner, name="wrong")], "finalizers": None}}
    api.patch(f"{SECRETS}/held", wrong)
    gone(api, f"{CONFIGMAPS}/owner")


@pytest.mark.parametrize("kind", ["ConfigMap", "Secret"])
def test_an_event_tells_of_an_owner_in_another_namespace_whatever_it_is_called(api: Api, kind: str) -> None:
    api.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    owner = api.post("/api/v1/namespaces/other/configmaps", configmap("owner")).json
    wrong = ref(owner, kind=kind, name="another")
    # The object of that name is no owner: its uid differs.
    plural = CONFIGMAPS if kind == "ConfigMap" else SECRETS
    api.post(plural, thing(plural, "another"))
    api.post(CONFIGMAPS, thing(CONFIGMAPS, "stray", wrong))
    gone(api, f"{CONFIGMAPS}/stray")
    selector = "fieldSelector=reason%3DOwnerRefInvalidNamespace"
    (event,) = eventually(lambda: api.get(f"{IN}/events?{selector}").json["items"], "the event")
    expected = f"ownerRef [v1/{kind}, namespace: default, name: another, uid: {wrong['uid']}] does not exist in"
    assert event["message"] == f'{expected} namespace "default"'


def test_no_event_tells_of_an_owner_that_is_gone_or_has_no_namespace(api: Api) -> None:
    role = api.post(
        ROLES, {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}}
    ).json
    ghost = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ghost", "uid": "u-1"}}
    api.post(CONFIGMAPS, thing(CONFIGMAPS, "one", ref(ghost)))
    api.post(CONFIGMAPS, thing(CONFIGMAPS, "two", ref(role, name="wrong")))
    gone(api, f"{CONFIGMAPS}/one")
    gone(api, f"{CONFIGMAPS}/two")
    assert not api.get(f"{IN}/events").json["items"]


def test_dependents_go_with_an_owner_whose_definition_goes_too(api: Api) -> None:
    define(api, crd("circles"))
    body = {"apiVersion": "shapes.example.com/v1", "kind": "Circle", "metadata": {"name": "owner"}}
    owner = api.post(CIRCLES, body).json
    for number in range(20):
        api.post(SECRETS, thing(SECRETS, f"s{number}", ref(owner)))
    api.delete(f"{CRDS}/circles.shapes.example.com")
    eventually(lambda: not api.get(SECRETS).json["items"], "the dependents gone")


def test_an_object_is_left_alone_while_the_kind_of_one_owner_is_not_served(api: Api) -> None:
    unknown = {"apiVersion": "nowhere.example.com/v1", "kind": "Thing", "metadata": {"name": "x", "uid": "u-2"}}
    ghost = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ghost", "uid": "u-1"}}
    api.post(CONFIGMAPS, thing(CONFIGMAPS, "kept", ref(unknown), ref(ghost)))
    api.post(CONFIGMAPS, thing(CONFIGMAPS, "goes", ref(ghost)))
    gone(api, f"{CONFIGMAPS}/goes")
    assert owners(api, f"{CONFIGMAPS}/kept") == ["x", "ghost"]
