"""Deletion: propagation, namespaces, definitions, the order of removal and the Status messages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.clients.api import CRDS, JSON, TABLE, YAML, Answer, Api, configmap, crd, define, eventually

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
CIRCLES = "/apis/shapes.example.com/v1/namespaces/default/circles"
NAMESPACES = "/api/v1/namespaces"


def namespace(name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **metadata}}


def gone(api: Api, path: str) -> None:
    eventually(lambda: api.get(path, expect=0).code == 404, f"{path} gone")


def names(api: Api, path: str) -> list[str]:
    return [item["metadata"]["name"] for item in api.get(path).json["items"]]


# --- one object ---


def test_an_object_that_goes_at_once_leaves_a_status(api: Api) -> None:
    uid = api.post(CONFIGMAPS, configmap("a")).json["metadata"]["uid"]
    assert api.delete(f"{CONFIGMAPS}/a").json == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "a", "kind": "configmaps", "uid": uid},
    }
    assert api.delete(f"{CONFIGMAPS}/a", expect=404).json["reason"] == "NotFound"


def test_some_kinds_are_returned_when_they_go(api: Api) -> None:
    path = "/api/v1/namespaces/default/serviceaccounts"
    api.post(path, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}})
    assert api.delete(f"{path}/a").json["kind"] == "ServiceAccount"


@pytest.mark.parametrize(
    ("preconditions", "text"),
    [
        (
            {"uid": "other"},
            "the UID in the precondition (other) does not match the UID in record ({uid}). "
            "The object might have been deleted and then recreated",
        ),
        (
            {"resourceVersion": "1"},
            "the ResourceVersion in the precondition (1) does not match the ResourceVersion in "
            "record ({resourceVersion}). The object might have been modified",
        ),
    ],
)
def test_preconditions_hold_a_deletion_back(api: Api, preconditions: dict[str, str], text: str) -> None:
    metadata = api.post(CONFIGMAPS, configmap("a")).json["metadata"]
    body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions}
    status = api.delete(f"{CONFIGMAPS}/a", body, expect=409).json
    start = 'Operation cannot be fulfilled on configmaps "a": '
    assert (status["reason"], status["message"]) == ("Conflict", start + text.format(**metadata))
    right = {key: metadata[key] for key in ("uid", "resourceVersion")}
    api.delete(f"{CONFIGMAPS}/a", {**body, "preconditions": right})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"propagationPolicy": "Sideways"}, 'propagationPolicy: Unsupported value: "Sideways"'),
        (
            {"propagationPolicy": "Orphan", "orphanDependents": True},
            "orphanDependents and deletionPropagation cannot be both set",
        ),
        ({"dryRun": ["Some"]}, "dryRun"),
    ],
)
def test_delete_options_that_mean_nothing_are_invalid(api: Api, options: dict[str, Any], message: str) -> None:
    api.post(CONFIGMAPS, configmap("a"))
    status = api.delete(f"{CONFIGMAPS}/a", {"kind": "DeleteOptions", "apiVersion": "v1", **options}, expect=422).json
    assert status["reason"] == "Invalid"
    assert message in status["message"]
    api.get(f"{CONFIGMAPS}/a")


@pytest.mark.parametrize(
    "options",
    [
        {"dryRun": 5},
        {"dryRun": "All"},
        {"dryRun": [5]},
        {"preconditions": "x"},
        {"preconditions": []},
        {"preconditions": {"uid": 5}},
        {"propagationPolicy": []},
        {"propagationPolicy": {}},
        {"gracePeriodSeconds": "x"},
        {"gracePeriodSeconds": 1.5},
        {"orphanDependents": "x"},
        {"apiVersion": "v9"},
        {"kind": "ConfigMap"},
        {"kind": 5},
        [],
        "x",
    ],
    ids=str,
)
@pytest.mark.parametrize("target", ["/a", "", "?labelSelector=colour"])
def test_options_of_wrong_types_are_refused_and_delete_nothing(admin: Api, options: Any, target: str) -> None:
    if admin.get(f"{CONFIGMAPS}/a", expect=0).code == 404:
        admin.post(CONFIGMAPS, configmap("a", labels={"colour": "red"}))
    body = {"kind": "DeleteOptions", "apiVersion": "v1", **options} if isinstance(options, dict) else options
    status = admin.send("DELETE", CONFIGMAPS + target, json.dumps(body).encode(), expect=400).json
    assert status["reason"] == "BadRequest"
    admin.get(f"{CONFIGMAPS}/a")


def test_options_are_refused_above_their_size(api: Api) -> None:
    api.post(CONFIGMAPS, configmap("a"))
    for target in ("/a", ""):
        api.send("DELETE", CONFIGMAPS + target, json.dumps({"x": "y" * 65536}).encode(), expect=413)
    api.get(f"{CONFIGMAPS}/a")


def test_options_may_have_the_version_of_what_is_deleted(api: Api) -> None:
    for version in ("v1", "meta.k8s.io/v1", "coordination.k8s.io/v1"):
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}}
        api.post(LEASES, lease)
        api.delete(f"{LEASES}/a", {"kind": "DeleteOptions", "apiVersion": version, "gracePeriodSeconds": None})


def test_a_collection_is_deleted_by_its_selectors_and_comes_back_as_a_list(api: Api) -> None:
    for name, colour in (("a", "red"), ("b", "blue"), ("c", "red")):
        api.post(CONFIGMAPS, configmap(name, labels={"colour": colour}))
    deleted = api.delete(f"{CONFIGMAPS}?labelSelector=colour%3Dred").json
    assert deleted["kind"] == "ConfigMapList"
    assert [item["metadata"]["name"] for item in deleted["items"]] == ["a", "c"]
    assert names(api, f"{CONFIGMAPS}?labelSelector=colour") == ["b"]
    api.delete(f"{CONFIGMAPS}?fieldSelector=metadata.name%3Db")
    assert names(api, f"{CONFIGMAPS}?labelSelector=colour") == []


def test_what_was_deleted_comes_back_in_the_form_of_a_list(api: Api) -> None:
    for name in ("a", "b", "c"):
        api.post(CONFIGMAPS, configmap(name))

    def delete(name: str, accept: str, path: str = "") -> Answer:
        selected = f"{CONFIGMAPS}?fieldSelector=metadata.name%3D{name}{path}"
        return api.send("DELETE", selected, accept=accept, expect=200)

    table = delete("a", TABLE).json
    assert (table["kind"], [row["cells"][0] for row in table["rows"]]) == ("Table", ["a"])
    assert b"- apiVersion: v1" in delete("b", YAML).body
    assert b"apiVersion: v1\nitems: []\nkind: ConfigMapList" in delete("b", YAML).body
    assert b'\n  "items": [\n' in delete("c", JSON, "&pretty=true").body
    assert names(api, f"{CONFIGMAPS}?fieldSelector=metadata.name!=kube-root-ca.crt") == []


# --- owners ---


def owned(name: str, owner: dict[str, Any], block: bool = False, **metadata: Any) -> dict[str, Any]:
    """A ConfigMap owned by another object."""
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": block,
    }
    return configmap(name, ownerReferences=[reference], **metadata)


def delete(api: Api, path: str, policy: str) -> Any:
    return api.delete(path, {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy}).json


def test_background_deletion_takes_dependents_down_the_chain(api: Api) -> None:
    top = api.post(CONFIGMAPS, configmap("top")).json
    middle = api.post(CONFIGMAPS, owned("middle", top)).json
    api.post(CONFIGMAPS, owned("leaf", middle))
    assert delete(api, f"{CONFIGMAPS}/top", "Background")["status"] == "Success"
    gone(api, f"{CONFIGMAPS}/middle")
    gone(api, f"{CONFIGMAPS}/leaf")


def test_foreground_deletion_waits_for_those_that_block(api: Api) -> None:
    top = api.post(CONFIGMAPS, configmap("top")).json
    api.post(CONFIGMAPS, owned("held", top, True, finalizers=["example.com/hold"]))
    api.post(CONFIGMAPS, owned("free", top))
    going = delete(api, f"{CONFIGMAPS}/top", "Foreground")
    assert going["metadata"]["finalizers"] == ["foregroundDeletion"]
    eventually(lambda: api.get(f"{CONFIGMAPS}/held").json["metadata"].get("deletionTimestamp"), "held is going")
    api.get(f"{CONFIGMAPS}/top")
    api.patch(f"{CONFIGMAPS}/held", {"metadata": {"finalizers": None}})
    gone(api, f"{CONFIGMAPS}/top")
    gone(api, f"{CONFIGMAPS}/free")


def test_orphans_stay_without_their_reference(api: Api) -> None:
    top = api.post(CONFIGMAPS, configmap("top")).json
    api.post(CONFIGMAPS, owned("child", top, True))
    delete(api, f"{CONFIGMAPS}/top", "Orphan")
    gone(api, f"{CONFIGMAPS}/top")
    assert "ownerReferences" not in api.get(f"{CONFIGMAPS}/child").json["metadata"]


def test_with_one_owner_left_a_dependent_stays(api: Api) -> None:
    one, two = (api.post(CONFIGMAPS, configmap(name)).json for name in ("one", "two"))
    body = owned("child", one)
    body["metadata"]["ownerReferences"] += owned("child", two)["metadata"]["ownerReferences"]
    api.post(CONFIGMAPS, body)
    api.delete(f"{CONFIGMAPS}/one")

    def references() -> list[str]:
        return [each["name"] for each in api.get(f"{CONFIGMAPS}/child").json["metadata"]["ownerReferences"]]

    eventually(lambda: references() == ["two"], "the reference to the absent owner is dropped")
    api.delete(f"{CONFIGMAPS}/two")
    gone(api, f"{CONFIGMAPS}/child")


def test_a_dependent_of_nobody_goes(api: Api) -> None:
    ghost = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ghost", "uid": "u-1"}}
    api.post(CONFIGMAPS, owned("child", ghost))
    gone(api, f"{CONFIGMAPS}/child")


def test_secrets_and_custom_objects_follow_their_owners_too(api: Api) -> None:
    define(api, crd("circles"))
    body = {"apiVersion": "shapes.example.com/v1", "kind": "Circle", "metadata": {"name": "a"}}
    circle = api.post(CIRCLES, body).json
    metadata = owned("x", circle)["metadata"]
    secrets = "/api/v1/namespaces/default/secrets"
    api.post(secrets, {"apiVersion": "v1", "kind": "Secret", "metadata": {**metadata, "name": "s"}})
    api.post(CIRCLES, {**body, "metadata": {**metadata, "name": "b"}})
    api.delete(f"{CIRCLES}/a")
    gone(api, f"{secrets}/s")
    gone(api, f"{CIRCLES}/b")


# --- namespaces ---


def test_a_namespace_is_active_and_has_its_default_objects(api: Api) -> None:
    made = api.post(NAMESPACES, namespace("n")).json
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": "n"}
    assert (made["status"], made["spec"]) == ({"phase": "Active"}, {"finalizers": ["kubernetes"]})
    eventually(lambda: "default" in names(api, f"{NAMESPACES}/n/serviceaccounts"), "service account")
    eventually(lambda: "kube-root-ca.crt" in names(api, f"{NAMESPACES}/n/configmaps"), "root CA")


def test_default_objects_come_back_when_deleted_or_edited(api: Api) -> None:
    accounts, ca = "/api/v1/namespaces/default/serviceaccounts", f"{CONFIGMAPS}/kube-root-ca.crt"
    before = api.get(f"{accounts}/default").json["metadata"]["uid"]
    api.delete(f"{accounts}/default")
    eventually(lambda: "default" in names(api, accounts), "service account")
    assert api.get(f"{accounts}/default").json["metadata"]["uid"] != before
    true = api.get(ca).json["data"]
    assert true["ca.crt"].startswith("-----BEGIN CERTIFICATE-----")
    api.patch(ca, {"data": {"ca.crt": "mine", "more": "x"}})
    eventually(lambda: api.get(ca).json["data"] == true, "the edit is reverted")
    api.delete(ca)
    eventually(lambda: api.get(ca, expect=0).code == 200, "it is back")


def test_a_namespace_goes_with_its_content(api: Api) -> None:
    define(api, crd("circles"))
    api.post(NAMESPACES, namespace("n"))
    api.post(f"{NAMESPACES}/n/configmaps", configmap("a"))
    api.post(
        "/apis/shapes.example.com/v1/namespaces/n/circles",
        {"apiVersion": "shapes.example.com/v1", "kind": "Circle", "metadata": {"name": "a"}},
    )
    going = api.delete(f"{NAMESPACES}/n").json
    assert (going["kind"], going["status"]["phase"]) == ("Namespace", "Terminating")
    gone(api, f"{NAMESPACES}/n")
    assert [item for item in api.get("/api/v1/configmaps").json["items"] if item["metadata"]["namespace"] == "n"] == []
    assert api.get("/apis/shapes.example.com/v1/circles").json["items"] == []


def test_a_namespace_waits_for_what_finalizers_hold_and_says_so(api: Api) -> None:
    api.post(NAMESPACES, namespace("n"))
    path = f"{NAMESPACES}/n/configmaps"
    api.post(path, configmap("held", finalizers=["example.com/hold"]))
    api.delete(f"{NAMESPACES}/n")

    def conditions() -> dict[str, tuple[str, str, str]]:
        status = api.get(f"{NAMESPACES}/n").json["status"]
        return {c["type"]: (c["status"], c["reason"], c["message"]) for c in status.get("conditions", [])}

    eventually(lambda: conditions().get("NamespaceContentRemaining", ("",))[0] == "True", "it tells what remains")
    assert conditions()["NamespaceContentRemaining"] == (
        "True",
        "SomeResourcesRemain",
        "Some resources are remaining: configmaps. has 1 resource instances",
    )
    assert conditions()["NamespaceFinalizersRemaining"][:2] == ("True", "SomeFinalizersRemain")
    refused = api.post(path, configmap("late"), expect=403).json
    assert refused["message"] == (
        'configmaps "late" is forbidden: unable to create new content in namespace n because it is being terminated'
    )
    assert refused["details"]["causes"] == [
        {"reason": "NamespaceTerminating", "message": "namespace n is being terminated", "field": "metadata.namespace"}
    ]
    api.patch(f"{path}/held", {"metadata": {"finalizers": None}})
    gone(api, f"{NAMESPACES}/n")


def test_the_finalize_subresource_lets_a_namespace_go(api: Api) -> None:
    body = namespace("n")
    body["spec"] = {"finalizers": ["kubernetes", "example.com/mine"]}
    api.post(NAMESPACES, body)
    api.delete(f"{NAMESPACES}/n")
    left = ["example.com/mine"]
    eventually(lambda: api.get(f"{NAMESPACES}/n").json["spec"]["finalizers"] == left, "the system's part is done")
    current = api.get(f"{NAMESPACES}/n").json
    api.put(f"{NAMESPACES}/n/finalize", {**current, "spec": {"finalizers": []}})
    gone(api, f"{NAMESPACES}/n")


@pytest.mark.parametrize("name", ["default", "kube-system"])
def test_the_namespaces_of_the_system_stay(api: Api, name: str) -> None:
    message = api.delete(f"{NAMESPACES}/{name}", expect=403).message
    assert message == f'namespaces "{name}" is forbidden: this namespace may not be deleted'


def test_many_namespaces_go_together(api: Api) -> None:
    for index in range(30):
        api.post(NAMESPACES, namespace(f"n{index}"))
    for index in range(30):
        api.delete(f"{NAMESPACES}/n{index}")
    eventually(lambda: names(api, NAMESPACES) == ["default", "kube-system"], "all are gone")


# --- definitions ---


def conditions_of(api: Api, name: str) -> dict[str, tuple[str, str]]:
    found = api.get(f"{CRDS}/{name}").json.get("status", {}).get("conditions", [])
    return {each["type"]: (each["status"], each["reason"]) for each in found}


def test_a_definition_is_established_and_served(api: Api) -> None:
    made = define(api, crd("circles"))
    assert conditions_of(api, "circles.shapes.example.com") == {
        "NamesAccepted": ("True", "NoConflicts"),
        "Established": ("True", "InitialNamesAccepted"),
    }
    assert made["status"]["storedVersions"] == ["v1"]
    assert made["status"]["acceptedNames"]["kind"] == "Circle"
    assert made["metadata"]["generation"] == 1


def test_every_version_serves_every_object(api: Api) -> None:
    definition = crd("circles")
    first = definition["spec"]["versions"][0]
    other = {**first, "name": "v2", "storage": False}
    hidden = {**first, "name": "v3", "storage": False, "served": False}
    definition["spec"]["versions"] = [first, other, hidden]
    define(api, definition)
    body = {"apiVersion": "shapes.example.com/v2", "kind": "Circle", "metadata": {"name": "a"}, "spec": {"colour": "r"}}
    made = api.post("/apis/shapes.example.com/v2/namespaces/default/circles", body).json
    assert made["apiVersion"] == "shapes.example.com/v2"
    for version in ("v1", "v2"):
        path = f"/apis/shapes.example.com/{version}/namespaces/default/circles"
        assert api.get(f"{path}/a").json["apiVersion"] == f"shapes.example.com/{version}"
        assert [item["apiVersion"] for item in api.get(path).json["items"]] == [f"shapes.example.com/{version}"]
    api.get("/apis/shapes.example.com/v3/circles", expect=404)
    changed = api.patch("/apis/shapes.example.com/v1/namespaces/default/circles/a", {"spec": {"colour": "b"}}).json
    again = api.put(
        "/apis/shapes.example.com/v2/namespaces/default/circles/a", {**changed, "apiVersion": "shapes.example.com/v2"}
    ).json
    assert again["metadata"]["resourceVersion"] == changed["metadata"]["resourceVersion"]


def test_a_stored_version_cannot_be_taken_away(api: Api) -> None:
    definition = crd("circles")
    first = definition["spec"]["versions"][0]
    define(api, definition)
    name = "circles.shapes.example.com"
    both = [{**first, "storage": False}, {**first, "name": "v2"}]
    api.patch(f"{CRDS}/{name}", {"spec": {"versions": both}})
    eventually(lambda: api.get(f"{CRDS}/{name}").json["status"]["storedVersions"] == ["v1", "v2"], "both are stored")
    message = api.patch(f"{CRDS}/{name}", {"spec": {"versions": [{**first, "name": "v2"}]}}, expect=422).message
    assert 'status.storedVersions[0]: Invalid value: "v1": missing from spec.versions' in message


def test_a_name_in_use_keeps_a_definition_from_being_served_until_it_is_free(api: Api) -> None:
    define(api, crd("circles"))
    other = crd("rings")
    other["spec"]["names"]["shortNames"] = ["circle"]
    api.post(CRDS, other)
    name = "rings.shapes.example.com"
    eventually(lambda: "NamesAccepted" in conditions_of(api, name), "judged")
    assert conditions_of(api, name) == {
        "NamesAccepted": ("False", "ShortNamesConflict"),
        "Established": ("False", "NotAccepted"),
    }
    found = api.get(f"{CRDS}/{name}").json["status"]["conditions"]
    assert {each["message"] for each in found} == {'"circle" is already in use', "not all names are accepted"}
    api.get("/apis/shapes.example.com/v1/rings", expect=404)
    api.delete(f"{CRDS}/circles.shapes.example.com")
    eventually(lambda: conditions_of(api, name)["Established"][0] == "True", "the name is free")
    eventually(lambda: api.get("/apis/shapes.example.com/v1/rings", expect=0).code == 200, "it is served")


def test_a_definition_goes_with_its_instances_and_comes_back_empty(api: Api) -> None:
    define(api, crd("circles"))
    body = {"apiVersion": "shapes.example.com/v1", "kind": "Circle", "metadata": {"name": "a"}}
    api.post(CIRCLES, body)
    api.post(CIRCLES, {**body, "metadata": {"name": "held", "finalizers": ["example.com/hold"]}})
    going = api.delete(f"{CRDS}/circles.shapes.example.com").json
    assert (going["kind"], going["metadata"]["finalizers"]) == (
        "CustomResourceDefinition",
        ["customresourcecleanup.apiextensions.k8s.io"],
    )
    assert going["metadata"]["deletionTimestamp"]
    terminating = [c for c in going["status"]["conditions"] if c["type"] == "Terminating"]
    assert [(c["status"], c["reason"], c["message"]) for c in terminating] == [
        (
            "True",
            "InstanceDeletionPending",
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        )
    ]
    gone(api, f"{CIRCLES}/a")
    message = api.post(CIRCLES, {**body, "metadata": {"name": "b"}}, expect=403).message
    assert "create not allowed while custom resource definition is terminating" in message
    progress = ("True", "InstanceDeletionInProgress")
    eventually(lambda: conditions_of(api, "circles.shapes.example.com")["Terminating"] == progress, "progress is told")
    api.patch(f"{CIRCLES}/held", {"metadata": {"finalizers": None}})
    gone(api, f"{CRDS}/circles.shapes.example.com")
    api.get(CIRCLES, expect=404)
    assert "shapes.example.com" not in [group["name"] for group in api.get("/apis").json["groups"]]
    define(api, crd("circles"))
    assert api.get(CIRCLES).json["items"] == []


def test_a_changed_definition_is_served_changed(api: Api) -> None:
    define(api, crd("circles"))
    body = {"apiVersion": "shapes.example.com/v1", "kind": "Circle", "metadata": {"name": "a"}}
    api.post(CIRCLES, body)
    definition = api.get(f"{CRDS}/circles.shapes.example.com").json
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    schema["weight"] = {"type": "string", "default": "light"}
    assert api.put(f"{CRDS}/circles.shapes.example.com", definition).json["metadata"]["generation"] == 2
    spec = {"colour": "red"}
    assert api.post(CIRCLES, {**body, "metadata": {"name": "b"}, "spec": spec}).json["spec"]["weight"] == "light"


# --- roles ---


def test_an_aggregated_role_is_the_sum_of_what_it_selects(api: Api) -> None:
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles"

    def role(name: str, **content: Any) -> dict[str, Any]:
        metadata = {"name": name, "labels": content.pop("labels", {})}
        return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata, **content}

    def rules(name: str) -> list[Any]:
        return api.get(f"{path}/{name}").json.get("rules") or []

    selector = {"clusterRoleSelectors": [{"matchLabels": {"sum": "yes"}}]}
    one = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}
    two = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}
    api.post(path, role("all", aggregationRule=selector, rules=[two]))
    api.post(path, role("one", labels={"sum": "yes"}, rules=[one]))
    eventually(lambda: rules("all") == [one], "one is in")
    api.post(path, role("two", labels={"sum": "yes"}, rules=[two]))
    eventually(lambda: rules("all") == [one, two], "two is in")
    api.delete(f"{path}/one")
    eventually(lambda: rules("all") == [two], "one is out")
