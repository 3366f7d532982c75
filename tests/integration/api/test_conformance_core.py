"""Core kinds, after the upstream conformance specs; `CONFORMANCE.md` maps each test to its spec."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from harness.clients.api import (
    APPLY,
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    TABLE,
    Api,
    Event,
    Object,
    configmap,
    crd,
    define,
    eventually,
)

NAMESPACES, IN = "/api/v1/namespaces", "/api/v1/namespaces/default"
CONFIGMAPS, SECRETS, QUOTAS = f"{IN}/configmaps", f"{IN}/secrets", f"{IN}/resourcequotas"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


def names(listed: Any) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


# --- server, discovery, forms ---


def test_the_version_has_one_digit_and_a_minor(api: Api) -> None:
    found = api.get("/version").json
    assert found["major"] in list("123456789")
    assert found["minor"].rstrip("+").isdigit()


def test_the_preferred_version_of_each_group_is_one_of_its_versions(api: Api) -> None:
    groups = api.get("/apis").json["groups"]
    assert groups
    for group in groups:
        assert api.get(f"/apis/{group['name']}").json["preferredVersion"] == group["preferredVersion"]
        assert group["preferredVersion"] in group["versions"]
        for version in group["versions"]:
            assert version["groupVersion"] == f"{group['name']}/{version['version']}"
            assert api.get(f"/apis/{version['groupVersion']}").json["resources"]


@pytest.mark.parametrize("path", ["/api", "/apis"])
def test_aggregated_discovery_shows_a_definition_once_it_is_established(api: Api, path: str) -> None:
    define(api, crd("circles"))
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    answer = api.get(path, accept=accept)
    assert answer.header("content-type") == accept
    groups = {item["metadata"].get("name", ""): item for item in answer.json["items"]}
    if path == "/apis":
        (version,) = groups["shapes.example.com"]["versions"]
        (resource,) = version["resources"]
        assert (version["version"], version["freshness"]) == ("v1", "Current")
        assert (resource["resource"], resource["scope"], resource["singularResource"]) == (
            "circles",
            "Namespaced",
            "circle",
        )
        assert resource["responseKind"] == {"group": "shapes.example.com", "version": "v1", "kind": "Circle"}
    else:
        assert "configmaps" in {r["resource"] for r in groups[""]["versions"][0]["resources"]}


def test_what_has_no_metadata_has_no_table(api: Api) -> None:
    body = {
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "spec": {"resourceAttributes": {"namespace": "default", "verb": "list", "resource": "pods"}},
    }
    status = api.send("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body, accept=TABLE, expect=406)
    assert status.json["reason"] == "NotAcceptable"


def test_four_hundred_objects_come_in_chunks_of_any_size(api: Api) -> None:
    """All chunks have the list's revision, and each states the remaining item count."""
    count = 400
    for number in range(count):
        api.post(CONFIGMAPS, configmap(f"template-{number:04}", labels={"chunked": ""}))
    total = count + 1  # the namespace's own kube-root-ca.crt
    for limit in (1 + count // 3, 17):
        came: list[str] = []
        revision, token = "", ""
        while True:
            listed = api.get(f"{CONFIGMAPS}?limit={limit}&continue={token}").json
            came += names(listed)
            assert len(listed["items"]) <= limit
            revision = revision or listed["metadata"]["resourceVersion"]
            assert listed["metadata"]["resourceVersion"] == revision
            token = listed["metadata"].get("continue", "")
            if not token:
                assert "remainingItemCount" not in listed["metadata"]
                break
            assert listed["metadata"]["remainingItemCount"] + len(came) == total
        assert came == sorted(set(came))
        assert len(came) == total
    assert len(names(api.get(CONFIGMAPS).json)) == total


# --- watchers ---


def test_watchers_of_labels_see_additions_updates_and_deletions(api: Api) -> None:
    since = api.get(CONFIGMAPS).json["metadata"]["resourceVersion"]

    def path(selector: str) -> str:
        return f"{CONFIGMAPS}?watch=1&resourceVersion={since}&labelSelector=watch-this {selector}".replace(" ", "%20")

    with api.watch(path("in (a)")) as a, api.watch(path("in (b)")) as b, api.watch(path("in (a,b)")) as both:
        for label in "ab":
            api.post(CONFIGMAPS, configmap(label, labels={"watch-this": label}))
            for mutation in "12":
                api.patch(f"{CONFIGMAPS}/{label}", {"data": {"mutation": mutation}})
            api.delete(f"{CONFIGMAPS}/{label}")
        for label in "ab":
            api.post(CONFIGMAPS, configmap(f"last-{label}", labels={"watch-this": label}))
        told = [("ADDED", None), ("MODIFIED", "1"), ("MODIFIED", "2"), ("DELETED", "2")]
        wanted = {
            label: [*((type, label, data) for type, data in told), ("ADDED", f"last-{label}", None)] for label in "ab"
        }
        assert [seen(e) for e in a.take(5)] == wanted["a"]
        assert [seen(e) for e in b.take(5)] == wanted["b"]
        assert [seen(e) for e in both.take(10)] == [*wanted["a"][:4], *wanted["b"][:4], wanted["a"][4], wanted["b"][4]]


def seen(event: Event) -> tuple[str, str, str | None]:
    """The type and name of an event, and the object's `mutation` value."""
    return event.type, event.name, (event.object.get("data") or {}).get("mutation")


def test_a_watcher_starts_from_a_revision_and_restarts_from_the_last_it_saw(api: Api) -> None:
    first = api.post(CONFIGMAPS, configmap("a", labels={"w": ""})).json["metadata"]["resourceVersion"]
    second = api.patch(f"{CONFIGMAPS}/a", {"data": {"mutation": "1"}}).json["metadata"]["resourceVersion"]
    third = api.patch(f"{CONFIGMAPS}/a", {"data": {"mutation": "2"}}).json["metadata"]["resourceVersion"]
    with api.watch(f"{CONFIGMAPS}?watch=1&labelSelector=w&resourceVersion={first}") as events:
        assert events.next().object["metadata"]["resourceVersion"] == second
    with api.watch(f"{CONFIGMAPS}?watch=1&labelSelector=w&resourceVersion={second}") as events:
        modified = events.next()
        api.delete(f"{CONFIGMAPS}/a")
        deleted = events.next()
    assert (modified.type, modified.object["metadata"]["resourceVersion"]) == ("MODIFIED", third)
    assert (deleted.type, deleted.object["data"]) == ("DELETED", {"mutation": "2"})


def test_an_object_that_leaves_a_selector_is_deleted_and_added_when_it_returns(api: Api) -> None:
    since = api.get(CONFIGMAPS).json["metadata"]["resourceVersion"]
    with api.watch(f"{CONFIGMAPS}?watch=1&labelSelector=w%3Dyes&resourceVersion={since}") as events:
        api.post(CONFIGMAPS, configmap("a", labels={"w": "yes"}))
        for value in ("no", "no", "yes"):
            api.patch(f"{CONFIGMAPS}/a", {"metadata": {"labels": {"w": value}}, "data": {"w": value}})
        api.patch(f"{CONFIGMAPS}/a", {"data": {"w": "again"}})
        api.delete(f"{CONFIGMAPS}/a")
        assert [e.type for e in events.take(5)] == ["ADDED", "DELETED", "ADDED", "MODIFIED", "DELETED"]


def test_watches_started_from_each_revision_see_the_same_order(api: Api) -> None:
    since = api.get(CONFIGMAPS).json["metadata"]["resourceVersion"]
    revisions = [since]
    for number in range(12):
        if number % 3 == 2:
            api.delete(f"{CONFIGMAPS}/m-{number - 1}")
        else:
            api.post(CONFIGMAPS, configmap(f"m-{number}", labels={"o": ""}))
        revisions.append(api.get(CONFIGMAPS).json["metadata"]["resourceVersion"])
    orders = []
    for start, revision in enumerate(revisions[:-1]):
        with api.watch(f"{CONFIGMAPS}?watch=1&labelSelector=o&resourceVersion={revision}") as events:
            orders.append([None] * start + [e.revision for e in events.take(12 - start)])
    for order in orders[1:]:
        shared = [pair for pair in zip(orders[0], order, strict=True) if pair[1] is not None]
        assert all(one == other for one, other in shared)


# --- configmaps, secrets, leases ---


@pytest.mark.parametrize(("path", "field"), [(CONFIGMAPS, "data"), (SECRETS, "data")])
def test_an_empty_key_is_refused(api: Api, path: str, field: str) -> None:
    kind = "ConfigMap" if path == CONFIGMAPS else "Secret"
    body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}, field: {"": "dmFsdWU="}}
    status = api.post(path, body, expect=422).json
    assert status["reason"] == "Invalid"
    assert status["details"]["causes"][0]["field"] == "data[]"


def test_a_configmap_above_its_limit_is_refused_as_a_whole(api: Api) -> None:
    status = api.post(CONFIGMAPS, configmap("big", {"a": "x" * 600_000, "b": "y" * 600_000}), expect=422).json
    assert status["message"] == 'ConfigMap "big" is invalid: []: Too long: may not be more than 1048576 bytes'
    assert [cause["field"] for cause in status["details"]["causes"]] == ["[]"]


def test_a_configmap_lives_is_watched_patched_and_deleted_with_its_collection(api: Api) -> None:
    label = {"test-configmap-static": "true"}
    with api.watch("/api/v1/configmaps?watch=1&labelSelector=test-configmap-static%3Dtrue") as events:
        api.post(CONFIGMAPS, configmap("test", {"valueName": "value"}, labels=label))
        assert events.next().type == "ADDED"
        api.patch(
            f"{CONFIGMAPS}/test",
            {"metadata": {"labels": {"test-configmap": "patched"}}, "data": {"valueName": "value1"}},
            STRATEGIC,
        )
        assert events.next().type == "MODIFIED"
        found = api.get(f"{CONFIGMAPS}/test").json
        assert (found["data"]["valueName"], found["metadata"]["labels"]["test-configmap"]) == ("value1", "patched")
        assert names(api.get("/api/v1/configmaps?labelSelector=test-configmap-static%3Dtrue").json) == ["test"]
        api.delete(f"{CONFIGMAPS}?labelSelector=test-configmap-static%3Dtrue")
        assert events.next().type == "DELETED"
    assert names(api.get(f"{CONFIGMAPS}?labelSelector=test-configmap-static%3Dtrue").json) == []


def test_a_secret_is_found_in_all_namespaces_by_label_and_patched(api: Api) -> None:
    metadata = {"name": "s", "labels": {"testsecret-constant": "true"}}
    body = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": {"key": "dmFsdWU="}}
    api.post(SECRETS, body)
    assert names(api.get("/api/v1/secrets?labelSelector=testsecret-constant%3Dtrue").json) == ["s"]
    patch = {"metadata": {"labels": {"testsecret": "true"}}, "data": {"key": base64.b64encode(b"value1").decode()}}
    api.patch(f"{SECRETS}/s", patch, STRATEGIC)
    (found,) = api.get("/api/v1/secrets?labelSelector=testsecret%3Dtrue").json["items"]
    assert base64.b64decode(found["data"]["key"]) == b"value1"
    api.delete(f"{SECRETS}?labelSelector=testsecret%3Dtrue")
    assert api.get("/api/v1/secrets?labelSelector=testsecret-constant").json["items"] == []


def test_a_lease_is_held_renewed_patched_and_deleted_with_its_collection(api: Api) -> None:
    spec: Object = {
        "holderIdentity": "holder",
        "leaseDurationSeconds": 30,
        "leaseTransitions": 0,
        "acquireTime": "2026-01-02T03:04:05.000006Z",
        "renewTime": "2026-01-02T03:04:10.000007Z",
    }
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": spec}
    made = api.post(LEASES, body).json
    assert api.get(f"{LEASES}/l").json["spec"] == spec
    renewed = {**spec, "holderIdentity": "other", "leaseTransitions": 1, "renewTime": "2026-01-02T03:05:10.000000Z"}
    api.put(f"{LEASES}/l", {**made, "spec": renewed})
    assert api.get(f"{LEASES}/l").json["spec"] == renewed
    api.put(f"{LEASES}/l", {**made, "spec": spec}, expect=409)
    assert api.patch(f"{LEASES}/l", {"spec": {"leaseDurationSeconds": 60}}, STRATEGIC).json["spec"] == {
        **renewed,
        "leaseDurationSeconds": 60,
    }
    api.post(LEASES, {**body, "metadata": {"name": "l2", "labels": {"deletecollection": "true"}}})
    assert names(api.get(LEASES).json) == ["l", "l2"]
    api.delete(f"{LEASES}?labelSelector=deletecollection%3Dtrue")
    assert names(api.get(LEASES).json) == ["l"]
    api.delete(f"{LEASES}/l")
    api.get(f"{LEASES}/l", expect=404)


# --- namespaces ---


def namespace(api: Api, name: str = "n") -> Object:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    return dict(api.post(NAMESPACES, body).json)


def test_a_namespace_is_patched(api: Api) -> None:
    namespace(api)
    patched = api.patch(f"{NAMESPACES}/n", {"metadata": {"labels": {"testLabel": "testValue"}}}, STRATEGIC).json
    assert patched["metadata"]["labels"] == {"kubernetes.io/metadata.name": "n", "testLabel": "testValue"}


def test_the_status_of_a_namespace_is_patched_and_updated(api: Api) -> None:
    namespace(api)
    condition = {
        "type": "StatusPatch",
        "status": "True",
        "reason": "E2E",
        "message": "Patched by an e2e test",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }
    patch = {"metadata": {"annotations": {"e2e-patched-ns-status": "n"}}, "status": {"conditions": [condition]}}
    patched = api.patch(f"{NAMESPACES}/n/status", patch, MERGE).json
    assert patched["status"]["conditions"] == [condition]
    assert patched["metadata"]["annotations"]["e2e-patched-ns-status"] == "n"
    update = {**condition, "type": "StatusUpdate", "message": "Updated by an e2e test"}
    patched["status"]["conditions"].append(update)
    updated = api.put(f"{NAMESPACES}/n/status", patched).json
    assert [each["type"] for each in updated["status"]["conditions"]] == ["StatusPatch", "StatusUpdate"]
    assert updated["status"]["phase"] == "Active"


def test_a_namespace_is_updated(api: Api) -> None:
    found = namespace(api)
    found["metadata"]["labels"]["n"] = "updated"
    assert api.put(f"{NAMESPACES}/n", found).json["metadata"]["labels"]["n"] == "updated"


def test_a_namespace_gets_and_loses_a_finalizer_by_its_own_door(api: Api) -> None:
    found = namespace(api)
    found["spec"]["finalizers"].append("e2e.example.com/fake")
    updated = api.put(f"{NAMESPACES}/n/finalize", found).json
    assert updated["spec"]["finalizers"] == ["kubernetes", "e2e.example.com/fake"]
    updated["spec"]["finalizers"].remove("e2e.example.com/fake")
    assert api.put(f"{NAMESPACES}/n/finalize", updated).json["spec"]["finalizers"] == ["kubernetes"]


# --- quotas ---


def calculated(api: Api, name: str) -> Object:
    """A quota, once its status shows its limits."""
    eventually(lambda: "status" in api.get(f"{QUOTAS}/{name}").json, "the status of the quota")
    return dict(api.get(f"{QUOTAS}/{name}").json)


def test_a_quota_is_created_updated_patched_and_deleted_with_its_collection(api: Api) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "labels": {"q": "e2e"}},
        "spec": {"hard": {"configmaps": "10", "services": "5"}},
    }
    api.post(QUOTAS, body)
    assert names(api.get("/api/v1/resourcequotas?labelSelector=q%3De2e").json) == ["q"]
    made = calculated(api, "q")
    made["spec"]["hard"]["configmaps"] = "20"
    assert api.put(f"{QUOTAS}/q", made).json["spec"]["hard"]["configmaps"] == "20"
    patched = api.patch(f"{QUOTAS}/q", {"metadata": {"labels": {"patched": "yes"}}, "spec": {"hard": {"secrets": "3"}}})
    assert patched.json["spec"]["hard"] == {"configmaps": "20", "services": "5", "secrets": "3"}
    deleted = api.delete(f"{QUOTAS}?labelSelector=patched%3Dyes").json
    assert (deleted["kind"], names(deleted)) == ("ResourceQuotaList", ["q"])
    api.get(f"{QUOTAS}/q", expect=404)


def test_the_status_of_a_quota_is_read_updated_and_patched(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"cpu": "500m"}}}
    api.post(QUOTAS, body)
    made = calculated(api, "q")
    found = api.get(f"{QUOTAS}/q/status").json
    found["status"] = {"hard": {"cpu": "500m", "memory": "500Mi"}}
    assert api.put(f"{QUOTAS}/q/status", found).json["status"]["hard"]["memory"] == "500Mi"
    patch = {"spec": {"hard": {"cpu": "1"}}, "status": {"hard": {"memory": "750Mi"}}}
    with api.watch(f"{QUOTAS}?watch=1&resourceVersion={made['metadata']['resourceVersion']}") as events:
        assert api.patch(f"{QUOTAS}/q/status", patch, STRATEGIC).json["status"]["hard"]["memory"] == "750Mi"
        updated, patched = events.take(2)
    assert (updated.type, updated.object["status"]["hard"]["memory"]) == ("MODIFIED", "500Mi")
    assert (patched.type, patched.object["status"]["hard"]["memory"]) == ("MODIFIED", "750Mi")
    # A patch of the status does not change the spec.
    assert patched.object["spec"] == api.get(f"{QUOTAS}/q").json["spec"] == body["spec"]
    operations = [{"op": "add", "path": "/status/used", "value": {"cpu": "1"}}]
    assert api.patch(f"{QUOTAS}/q/status", operations, JSON_PATCH).json["status"]["used"] == {"cpu": "1"}


# --- garbage collection of custom resources ---


CIRCLES = "/apis/shapes.example.com/v1/namespaces/default/circles"


def circle(name: str, *owners: Object) -> Object:
    metadata: Object = {"name": name, "namespace": "default"}
    if owners:
        metadata["ownerReferences"] = list(owners)
    return {"apiVersion": "shapes.example.com/v1", "kind": "Circle", "metadata": metadata}


def owned_by(obj: Object, **more: Any) -> Object:
    metadata = obj["metadata"]
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        **more,
    }


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_custom_resources_go_with_their_owners(api: Api, policy: str) -> None:
    define(api, crd("circles"))
    owner = api.post(CIRCLES, circle("owner")).json
    api.post(CIRCLES, circle("dependent", owned_by(owner, blockOwnerDeletion=True)))
    api.delete(f"{CIRCLES}/owner", {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy})
    eventually(lambda: not api.get(CIRCLES).json["items"], "owner and dependent gone")


def test_custom_resources_are_orphaned_and_keep_living(api: Api) -> None:
    define(api, crd("circles"))
    owner = api.post(CIRCLES, circle("owner")).json
    api.post(CIRCLES, circle("dependent", owned_by(owner)))
    api.delete(f"{CIRCLES}/owner", {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Orphan"})
    eventually(lambda: names(api.get(CIRCLES).json) == ["dependent"], "the owner gone")
    assert not api.get(f"{CIRCLES}/dependent").json["metadata"].get("ownerReferences")


def test_an_owner_in_another_namespace_is_none_and_an_event_says_so(api: Api) -> None:
    namespace(api)
    owner = api.post(f"{NAMESPACES}/n/configmaps", configmap("owner")).json
    api.post(CONFIGMAPS, configmap("stray", ownerReferences=[owned_by(owner)]))
    eventually(lambda: api.get(f"{CONFIGMAPS}/stray", expect=0).code == 404, "the stray collected")
    (event,) = eventually(
        lambda: api.get(f"{IN}/events?fieldSelector=reason%3DOwnerRefInvalidNamespace").json["items"], "the event"
    )
    uid = owner["metadata"]["uid"]
    expected = (
        f'ownerRef [v1/ConfigMap, namespace: default, name: owner, uid: {uid}] does not exist in namespace "default"'
    )
    assert (event["message"], event["type"]) == (expected, "Warning")
    assert (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == ("ConfigMap", "stray")
    assert event["source"] == {"component": "garbage-collector-controller"}
    assert api.get(f"{NAMESPACES}/n/configmaps/owner").json["metadata"]["uid"] == uid


def test_a_cluster_scoped_object_outlives_an_owner_that_cannot_be_its(api: Api) -> None:
    owner = api.post(CONFIGMAPS, configmap("owner")).json
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "rules": [],
        "metadata": {"name": "stray", "ownerReferences": [owned_by(owner)]},
    }
    api.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
    (event,) = eventually(
        lambda: api.get(f"{IN}/events?fieldSelector=reason%3DOwnerRefInvalidNamespace").json["items"], "the event"
    )
    assert (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == ("ClusterRole", "stray")
    api.delete(f"{CONFIGMAPS}/owner")
    api.post(CONFIGMAPS, configmap("bystander", ownerReferences=[owned_by(owner)]))
    eventually(lambda: api.get(f"{CONFIGMAPS}/bystander", expect=0).code == 404, "what follows it is collected")
    assert api.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/stray").code == 200


def test_an_applied_change_of_nothing_is_no_event(api: Api) -> None:
    body = configmap("a", {"k": "v"})
    path = f"{CONFIGMAPS}/a?fieldManager=m"
    first = api.patch(path, body, APPLY, expect=201).json["metadata"]["resourceVersion"]
    assert api.patch(path, body, APPLY).json["metadata"]["resourceVersion"] == first
