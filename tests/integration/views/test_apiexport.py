"""The apiexport view over the wire: served resources, every verb, claims, and the end of access."""

from __future__ import annotations

import hashlib
import http.client
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.clients.api import (
    APPLY,
    JSON_PATCH,
    PARTIAL_LIST,
    TABLE,
    Api,
    Event,
    Events,
    configmap,
    crd,
    eventually,
    workspace_under,
)
from harness.clients.exports import (
    BINDINGS,
    EXPORTS,
    PATIENCE_S,
    accepted,
    an_object,
    bind,
    claim,
    cluster_of,
    make_export,
    objects_path,
    schema,
    schema_of,
    unbind,
    wait,
)
from harness.clients.put_back import check_all_put_back
from harness.oracles.audit_log import audit_events
from harness.oracles.claim_labels import applied

RBAC = "/apis/rbac.authorization.k8s.io/v1"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
CIRCLES = schema("circles")
HERE, EVERYWHERE = objects_path(CIRCLES), objects_path(CIRCLES, namespace="")
ALL_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
FROM_THE_START = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"


ENTER = {"nonResourceURLs": ["/"], "verbs": ["access"]}


def view_of(provider: Api, export: str = "shapes", token: str = "worker-token") -> Api:
    """The view of an export as a user, with that user's rights."""
    api = Api(provider.shard, token=token)
    api.prefix = f"/services/apiexport/{cluster_of(provider)}/{export}/clusters"
    return api


def grant(api: Api, user: str, *verbs: str, export: str = "shapes", subject: str = "User") -> str:
    """Let a user enter a workspace and reach the content of an export; return the name of role and binding."""
    rule = {"apiGroups": ["apis.kcp.io"], "resources": ["apiexports/content"], "resourceNames": [export]}
    return give(api, user, {**rule, "verbs": list(verbs or "*")}, ENTER, subject=subject)


def give(api: Api, user: str, *rules: dict[str, Any], subject: str = "User") -> str:
    body = {"metadata": {"generateName": "given-"}, "rules": list(rules)}
    name = str(api.post(f"{RBAC}/clusterroles", body).json["metadata"]["name"])
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": subject, "name": user}]
    api.post(f"{RBAC}/clusterrolebindings", {"metadata": {"name": name}, "subjects": subjects, "roleRef": reference})
    return name


def labels_of(api: Api, name: str) -> dict[str, str]:
    return dict(api.get(f"{CONFIGMAPS}/{name}").json["metadata"].get("labels") or {})


def is_claimed(obj: dict[str, Any]) -> bool:
    return any(key.startswith("claimed.internal") for key in obj["metadata"].get("labels") or {})


def names(answer: Any) -> list[str]:
    return [item["metadata"]["name"] for item in answer.json["items"]]


def ended(events: Events) -> list[Event]:
    """The remaining events of a watch that the server ends; fails if it goes on."""
    try:
        return events.rest()
    except (TimeoutError, http.client.IncompleteRead) as error:
        raise AssertionError("the watch did not end") from error


@pytest.fixture
def view(provider: Api) -> Iterator[Api]:
    """The view of `shapes`, which exports circles, as a user with all rights on its content."""
    make_export(provider, "shapes", CIRCLES)
    grant(provider, "worker")
    api = view_of(provider)
    yield api
    api.close()


# --- what is served ---------------------------------------------------------------------------------------


def test_discovery_is_of_the_export_its_claims_and_the_bindings_to_it(provider: Api) -> None:
    claims = [claim("configmaps"), claim("events"), claim("localsubjectaccessreviews", "authorization.k8s.io")]
    make_export(provider, "shapes", CIRCLES, claims=claims)
    grant(provider, "worker")
    view = view_of(provider)
    listed = view.get("/*/apis").json["groups"]
    groups = {group["name"]: [each["version"] for each in group["versions"]] for group in listed}
    assert groups == {
        "apis.kcp.io": ["v1alpha2", "v1alpha1"],
        "authorization.k8s.io": ["v1"],
        "events.k8s.io": ["v1"],
        "shapes.example.com": ["v1"],
    }
    found = {}
    served = [f"{group}/{version}" for group, versions in groups.items() for version in versions]
    for path in ("/api/v1", *(f"/apis/{each}" for each in served)):
        for resource in view.get(f"/*{path}").json["resources"]:
            found[path, resource["name"]] = resource["verbs"]
    assert found == {
        ("/api/v1", "configmaps"): ALL_VERBS,
        ("/api/v1", "events"): ALL_VERBS,
        ("/apis/events.k8s.io/v1", "events"): ALL_VERBS,
        ("/apis/authorization.k8s.io/v1", "localsubjectaccessreviews"): ["create"],
        ("/apis/apis.kcp.io/v1alpha2", "apibindings"): ["get", "list", "watch"],
        ("/apis/apis.kcp.io/v1alpha1", "apibindings"): ["get", "list", "watch"],
        ("/apis/shapes.example.com/v1", "circles"): ALL_VERBS,
        ("/apis/shapes.example.com/v1", "circles/status"): ["get", "patch", "update"],
    }
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    aggregated = view.get("/*/apis", accept=accept).json["items"]
    assert {item["metadata"]["name"] for item in aggregated} == set(groups)
    paths = view.get("/*/openapi/v3").json["paths"]
    assert {path for path in paths if path.startswith("apis/") and path.count("/") == 2} == {
        f"apis/{each}" for each in served
    }
    document = view.get("/*/openapi/v3/apis/shapes.example.com/v1").json
    assert "/apis/shapes.example.com/v1/namespaces/{namespace}/circles/{name}/status" in document["paths"]
    assert not [path for path in document["paths"] if path.endswith("/scale")]
    swagger = view.get("/*/openapi/v2", accept="application/json").json
    assert not [path for path in swagger["paths"] if "/secrets" in path or "/workspaces" in path]
    view.get("/*/metrics", expect=404)


def test_all_served_versions_of_a_schema_are_there(provider: Api, consumer: Api) -> None:
    two = schema("circles")
    first = two["spec"]["versions"][0]
    two["spec"]["versions"].append({**first, "name": "v2", "storage": False})
    two["spec"]["conversion"] = {"strategy": "None"}
    make_export(provider, "shapes", two)
    grant(provider, "worker")
    bind(consumer, provider.cluster, "shapes")
    consumer.post(HERE, an_object(two, "a"))
    view, cluster = view_of(provider), cluster_of(consumer)
    for version in ("v1", "v2"):
        path = objects_path(two, version)
        assert view.get(f"/{cluster}{path}/a").json["apiVersion"] == f"shapes.example.com/{version}"
        (item,) = view.get(f"/*{objects_path(two, version, '')}").json["items"]
        assert item["apiVersion"] == f"shapes.example.com/{version}"


def test_without_any_consumer_lists_are_empty_and_watches_wait(provider: Api, consumer: Api, view: Api) -> None:
    listed = view.get(f"/*{EVERYWHERE}").json
    assert listed["items"] == [] and int(listed["metadata"]["resourceVersion"]) > 0
    with (
        view.watch(f"/*{EVERYWHERE}?{FROM_THE_START}") as new,
        view.watch(f"/*{EVERYWHERE}?watch=1&resourceVersion={listed['metadata']['resourceVersion']}") as resumed,
        view.watch(f"/*{BINDINGS}?watch=1") as bindings,
    ):
        first = new.next()
        assert first.type == "BOOKMARK"
        assert first.object["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        bind(consumer, provider.cluster, "shapes")
        consumer.post(HERE, an_object(CIRCLES, "a"))
        for events in (new, resumed):
            added = events.until("ADDED")
            assert added.object["metadata"]["annotations"]["kcp.io/cluster"] == cluster_of(consumer)
        assert bindings.next().name == "shapes"


def test_lists_of_all_consumers_come_in_pages_as_tables_and_as_metadata(admin: Api, provider: Api, view: Api) -> None:
    consumers = [admin.at(workspace_under(admin, type_="universal")) for _ in range(3)]
    for index, consumer in enumerate(consumers):
        bind(consumer, provider.cluster, "shapes")
        consumer.post(HERE, an_object(CIRCLES, f"c{index}", spec={"colour": "red"}))
        consumer.post(HERE, an_object(CIRCLES, f"d{index}", spec={"colour": "blue"}))
    url, found, pages = f"/*{EVERYWHERE}?limit=2", [], 0
    while True:
        page = view.get(url)
        found += names(page)
        pages += 1
        if not (token := page.json["metadata"].get("continue")):
            break
        url = f"/*{EVERYWHERE}?limit=2&continue={token}"
    assert (sorted(found), pages) == (["c0", "c1", "c2", "d0", "d1", "d2"], 3)
    table = view.get(f"/*{EVERYWHERE}", accept=TABLE).json
    assert sorted(row["cells"][0] for row in table["rows"]) == sorted(found)
    partial = view.get(f"/*{EVERYWHERE}", accept=PARTIAL_LIST).json
    assert {item["kind"] for item in partial["items"]} == {"PartialObjectMetadata"}
    named = view.get(f"/*{EVERYWHERE}?fieldSelector=metadata.name%3Dc1")
    assert names(named) == ["c1"]


def test_a_list_of_all_consumers_may_be_of_one_namespace(admin: Api, master: Api, provider: Api, view: Api) -> None:
    consumers = [admin.at(workspace_under(admin, type_="universal")) for _ in range(2)]
    there = objects_path(CIRCLES, namespace="apart")
    for index, consumer in enumerate(consumers):
        bind(consumer, provider.cluster, "shapes")
        consumer.post("/api/v1/namespaces", {"metadata": {"name": "apart"}})
        consumer.post(HERE, an_object(CIRCLES, f"here-{index}"))
        consumer.post(there, an_object(CIRCLES, f"there-{index}"))
    listed = view.get(f"/*{there}")
    assert sorted(names(listed)) == ["there-0", "there-1"]
    assert {item["metadata"]["namespace"] for item in listed.json["items"]} == {"apart"}
    first = view.get(f"/*{there}?limit=1")
    second = view.get(f"/*{there}?limit=1&continue={first.json['metadata']['continue']}")
    assert sorted(names(first) + names(second)) == ["there-0", "there-1"]
    assert names(view.get(f"/*{objects_path(CIRCLES, namespace='nosuch')}")) == []
    # The same without a view, of a kind that each workspace has by itself.
    for consumer in consumers:
        consumer.post("/api/v1/namespaces/apart/configmaps", configmap("mine"))
    clusters = {cluster_of(consumer) for consumer in consumers}
    wide = master.at("*").get("/api/v1/namespaces/apart/configmaps?fieldSelector=metadata.name%3Dmine").json["items"]
    assert {each["metadata"]["annotations"]["kcp.io/cluster"] for each in wide} >= clusters
    assert {each["metadata"]["namespace"] for each in wide} == {"apart"}
    revision = listed.json["metadata"]["resourceVersion"]
    with view.watch(f"/*{there}?watch=1&resourceVersion={revision}") as events:
        for index, consumer in enumerate(consumers):
            consumer.delete(f"{HERE}/here-{index}")
            consumer.delete(f"{there}/there-{index}")
            gone = events.next()
            assert (gone.type, gone.name) == ("DELETED", f"there-{index}")


# --- every verb -------------------------------------------------------------------------------------------


def test_a_provider_does_everything_with_the_objects_of_a_consumer(provider: Api, consumer: Api, view: Api) -> None:
    bind(consumer, provider.cluster, "shapes")
    path = f"/{cluster_of(consumer)}{HERE}"
    made = view.post(path, an_object(CIRCLES, "a", spec={"colour": "red"})).json
    assert made["metadata"]["annotations"]["kcp.io/cluster"] == cluster_of(consumer)
    view.put(f"{path}/a", {**made, "spec": {"colour": "blue"}})
    view.patch(f"{path}/a", {"spec": {"size": 3}})
    view.patch(f"{path}/a", [{"op": "replace", "path": "/spec/size", "value": 4}], JSON_PATCH)
    applied_one = an_object(CIRCLES, "a", spec={"replicas": 2})
    view.patch(f"{path}/a?fieldManager=me", applied_one, APPLY)
    view.patch(f"{path}/b?fieldManager=me", an_object(CIRCLES, "b"), APPLY, expect=201)
    view.patch(f"{path}/a/status", {"status": {"replicas": 2}})
    status = view.get(f"{path}/a/status").json
    view.put(f"{path}/a/status", {**status, "status": {"replicas": 5}})
    found = consumer.get(f"{HERE}/a").json
    assert (found["spec"], found["status"]) == ({"colour": "blue", "size": 4, "replicas": 2}, {"replicas": 5})
    view.get(f"{path}/a/scale", expect=404)
    view.send("PATCH", f"{path}/a", {"spec": {"size": "big"}}, kind="application/merge-patch+json", expect=422)
    assert names(view.get(path)) == ["a", "b"]
    view.delete(f"{path}/b")
    view.delete(path)
    assert names(consumer.get(HERE)) == []
    for method, url in (("POST", EVERYWHERE), ("DELETE", EVERYWHERE), ("PUT", f"{EVERYWHERE}/a")):
        assert view.send(method, f"/*{url}", an_object(CIRCLES, "x")).code in {404, 405}


def test_the_verbs_that_are_held_on_the_content_are_those_that_go(provider: Api, consumer: Api, view: Api) -> None:
    bind(consumer, provider.cluster, "shapes")
    consumer.post(HERE, an_object(CIRCLES, "a"))
    grant(provider, "alice", "get", "list", "patch")
    alice, path = view_of(provider, token="alice-token"), f"/{cluster_of(consumer)}{HERE}"
    alice.get(f"{path}/a")
    alice.get(f"/*{EVERYWHERE}")
    alice.get("/*/apis")
    alice.get(f"{path}?watch=1", expect=403)
    alice.patch(f"{path}/a/status", {"status": {"replicas": 1}})
    alice.patch(f"{path}/new?fieldManager=me", an_object(CIRCLES, "new"), APPLY, expect=403)
    alice.send("DELETE", f"{path}/a", expect=403)


def test_a_provider_may_be_an_account_of_his_workspace(provider: Api, consumer: Api, view: Api) -> None:
    bind(consumer, provider.cluster, "shapes")
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    accounts = {
        api: view_of(provider, token=api.post(path, request).json["status"]["token"]) for api in (provider, consumer)
    }
    here = f"/{cluster_of(consumer)}{HERE}"
    for url in (here, f"/*{EVERYWHERE}"):
        accounts[provider].get(url, expect=403)
    grant(provider, "system:serviceaccount:default:default")
    made = accounts[provider].post(here, an_object(CIRCLES, "a")).json
    accounts[provider].patch(f"{here}/a/status", {"status": {"replicas": 1}})
    assert names(accounts[provider].get(f"/*{EVERYWHERE}")) == [made["metadata"]["name"]]
    # The consumer's account of the same name is another user.
    for url in (here, f"/*{EVERYWHERE}"):
        accounts[consumer].get(url, expect=403)


def test_no_hash_is_passed_and_no_export_made_up(provider: Api, consumer: Api, view: Api, master: Api) -> None:
    made = provider.get(f"{EXPORTS}/shapes").json
    bind(consumer, provider.cluster, "shapes")
    view.get(f"/*/apis/shapes.example.com/v1/circles:{made['status']['identityHash']}", expect=403)
    cluster = cluster_of(consumer)
    for export in ("nothing", "shapes.example.com"):
        for where in ("*", cluster):
            view_of(provider, export).get(f"/{where}{EVERYWHERE}", expect=403)
            unknown = view_of(provider, export, token=master.token)
            unknown.get(f"/{where}{EVERYWHERE}", expect=404)
    by_path = Api(provider.shard, token=master.token)
    by_path.get(f"/services/apiexport/{provider.cluster}/shapes/clusters/*{EVERYWHERE}", expect=404)
    by_path.get(f"/services/apiexport/{cluster_of(provider)}/shapes/clusters/{consumer.cluster}{HERE}", expect=404)


@pytest.mark.long
def test_what_a_provider_reads_he_can_put_back(provider: Api, consumer: Api) -> None:
    claims = [claim("configmaps"), claim("secrets")]
    deployments = crd("deployments", "apps")
    deployments["spec"]["names"] |= {"kind": "Deployment", "listKind": "DeploymentList", "singular": "deployment"}
    make_export(provider, "shapes", CIRCLES, schema_of(deployments), claims=claims)
    grant(provider, "worker")
    bind(consumer, provider.cluster, "shapes", [accepted(each) for each in claims])
    applied(consumer, "shapes")
    view, cluster = view_of(provider), cluster_of(consumer)
    consumer.post(CONFIGMAPS, {**configmap("a", {"k": ""}), "binaryData": {"b": "AP8="}})
    sealed = "/api/v1/namespaces/default/secrets"
    consumer.post(sealed, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "data": {"k": "AA=="}})
    consumer.post(HERE, an_object(CIRCLES, "a", spec={"replicas": 2}, status={"replicas": 1}))
    workload = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": {"replicas": 2}}
    consumer.post("/apis/apps/v1/namespaces/default/deployments", workload)
    kinds = ("configmaps", "secrets", "circles", "deployments")
    check_all_put_back(view, *kinds, prefix=f"/{cluster}")
    check_all_put_back(consumer, *kinds, "apibindings", "namespaces")
    view.close()


# --- claims -----------------------------------------------------------------------------------------------


def claiming(provider: Api, consumer: Api, given: dict[str, Any], *more: dict[str, Any]) -> tuple[Api, str]:
    """The view of an export that claims ConfigMaps with a consumer's answer; and the consumer's cluster."""
    make_export(provider, "shapes", CIRCLES, claims=[claim("configmaps"), *more])
    grant(provider, "worker")
    bind(consumer, provider.cluster, "shapes", [given])
    applied(consumer, "shapes")
    return view_of(provider), cluster_of(consumer)


SIX = ("create", "delete", "get", "list", "update", "watch")


@pytest.mark.parametrize("write", ["create", "update", "patch"])
def test_a_star_grants_every_verb_only_where_export_and_binding_both_have_it(
    provider: Api, consumer: Api, write: str
) -> None:
    make_export(provider, "shapes", CIRCLES, claims=[claim("configmaps", "", *SIX)])
    grant(provider, "worker")
    view, path = view_of(provider), f"/{cluster_of(consumer)}{CONFIGMAPS}"
    everything, six = accepted(claim("configmaps")), accepted(claim("configmaps", "", *SIX))
    bind(consumer, provider.cluster, "shapes", [everything if write == "create" else six])
    applied(consumer, "shapes")
    path_of_binding = f"{BINDINGS}/shapes"
    for claims, code in ([six], 200), ([everything], 403), ([six], 200), ([everything], 403):
        if write != "create":
            accept(consumer, path_of_binding, claims, write)
        elif claims == [six]:
            continue
        for _ in range(3):
            eventually(lambda code=code: view.get(path, expect=0).code == code, f"{code}")  # type: ignore[misc]
            consumer.post(CONFIGMAPS, {**configmap("x"), "metadata": {"generateName": "x-"}})
    export = provider.get(f"{EXPORTS}/shapes").json
    export["spec"]["permissionClaims"] = [claim("configmaps")]
    provider.send("PUT", f"{EXPORTS}/shapes", export, expect=200)
    eventually(lambda: view.get(path, expect=0).code == 200, "both have a star")
    view.close()


def accept(consumer: Api, path: str, claims: list[dict[str, Any]], write: str) -> None:
    """Replace the claims that a binding accepts, by an update or by a patch."""
    if write == "patch":
        consumer.patch(path, {"spec": {"permissionClaims": claims}})
        return

    def replaced() -> bool:
        found = consumer.get(path).json
        return consumer.send("PUT", path, {**found, "spec": {**found["spec"], "permissionClaims": claims}}).code == 200

    eventually(replaced, "the binding replaced")


def test_what_is_written_under_a_claim_has_the_labels_of_its_selector(provider: Api, consumer: Api) -> None:
    view, cluster = claiming(provider, consumer, accepted(claim("configmaps"), matchLabels={"team": "a"}))
    path = f"/{cluster}{CONFIGMAPS}"
    view.post(path, configmap("filled-in"))
    found = view.get(f"{path}/filled-in").json
    assert found["metadata"]["labels"]["team"] == "a" and is_claimed(found)
    refused = view.post(path, configmap("of-b", labels={"team": "b"}), expect=403)
    assert "permission claim" in refused.message
    view.patch(f"{path}/filled-in", {"metadata": {"labels": {"team": "b"}}}, expect=403)
    view.patch(f"{path}/filled-in", {"data": {"k": "v"}})
    view.patch(f"{path}/applied?fieldManager=me", configmap("applied"), APPLY, expect=201)
    assert labels_of(consumer, "applied")["team"] == "a"
    for answer in (
        view.send("PUT", f"{path}/filled-in", configmap("filled-in", {"k": "w"})),
        view.patch(f"{path}/filled-in", {"metadata": {"labels": {"team": None}}}),
        view.patch(f"{path}/filled-in", {"metadata": {"labels": None}}),
        view.patch(f"{path}/filled-in", [{"op": "remove", "path": "/metadata/labels/team"}], JSON_PATCH),
        view.patch(f"{path}/filled-in?fieldManager=me&force=true", configmap("filled-in"), APPLY),
    ):
        assert answer.code == 200 and answer.json["metadata"]["labels"]["team"] == "a", answer
        assert labels_of(consumer, "filled-in")["team"] == "a"
    view.send("PUT", f"{path}/filled-in", configmap("filled-in", labels={"team": "b"}), expect=403)
    assert sorted(names(view.get(path))) == ["applied", "filled-in"]


def test_what_a_claim_does_not_select_is_not_there(provider: Api, consumer: Api) -> None:
    view, cluster = claiming(provider, consumer, accepted(claim("configmaps"), matchLabels={"team": "a"}))
    consumer.post(CONFIGMAPS, configmap("hidden", {"password": "x"}))
    consumer.post(CONFIGMAPS, configmap("shown", labels={"team": "a"}))
    path = f"/{cluster}{CONFIGMAPS}"
    assert names(view.get(path)) == ["shown"]
    # Unlike the workspace itself, a view serves all kinds as custom ones.
    assert [item["kind"] for item in view.get(path).json["items"]] == ["ConfigMap"]
    for method, body, kind in (
        ("GET", None, ""),
        ("DELETE", None, ""),
        ("PUT", configmap("hidden"), "application/json"),
        ("PATCH", {"data": {"a": "b"}}, "application/merge-patch+json"),
        # Not even a test of its content is answered.
        ("PATCH", [{"op": "test", "path": "/data/password", "value": "y"}], JSON_PATCH),
    ):
        view.send(method, f"{path}/hidden", body, kind=kind, expect=404)
    view.delete(path)
    assert "hidden" in names(consumer.get(CONFIGMAPS)) and "shown" not in names(consumer.get(CONFIGMAPS))


def test_an_object_leaves_by_deleted_when_its_labels_do(provider: Api, consumer: Api) -> None:
    view, cluster = claiming(provider, consumer, accepted(claim("configmaps"), matchLabels={"team": "a"}))
    consumer.post(CONFIGMAPS, configmap("a", labels={"team": "a"}))
    with view.watch("/*/api/v1/configmaps?watch=1") as wide, view.watch(f"/{cluster}{CONFIGMAPS}?watch=1") as named:
        assert (wide.next().name, named.next().name) == ("a", "a")
        consumer.patch(f"{CONFIGMAPS}/a", {"metadata": {"labels": {"team": "b"}}})
        for events in (wide, named):
            gone = events.until("DELETED")
            assert gone.name == "a" and gone.object["metadata"]["labels"]["team"] == "a"
        consumer.patch(f"{CONFIGMAPS}/a", {"metadata": {"labels": {"team": "a"}}})
        assert (wide.until("ADDED").name, named.until("ADDED").name) == ("a", "a")


def test_events_are_claimed_in_both_groups_at_once(provider: Api, consumer: Api) -> None:
    made = claim("events", "events.k8s.io")
    make_export(provider, "shapes", CIRCLES, claims=[made])
    grant(provider, "worker")
    bind(consumer, provider.cluster, "shapes", [accepted(made)])
    applied(consumer, "shapes")
    view, cluster = view_of(provider), cluster_of(consumer)
    involved = {"kind": "Circle", "name": "a", "namespace": "default", "apiVersion": "shapes.example.com/v1"}
    event = {"metadata": {"name": "e"}, "involvedObject": involved, "reason": "R", "message": "m", "type": "Normal"}
    view.post(f"/{cluster}/api/v1/namespaces/default/events", {"apiVersion": "v1", "kind": "Event", **event})
    for path in ("/api/v1/events", "/apis/events.k8s.io/v1/events"):
        assert names(view.get(f"/*{path}")) == ["e"], path


def test_a_review_that_is_claimed_is_asked_in_the_workspace(provider: Api, consumer: Api) -> None:
    made = claim("subjectaccessreviews", "authorization.k8s.io")
    make_export(provider, "shapes", CIRCLES, claims=[made])
    grant(provider, "worker")
    bind(consumer, provider.cluster, "shapes", [accepted(made)])
    view, cluster = view_of(provider), cluster_of(consumer)
    give(consumer, "alice", {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]})
    give(consumer, "alice", {"nonResourceURLs": ["/"], "verbs": ["access"]})
    asked = {"user": "alice", "resourceAttributes": {"verb": "get", "resource": "secrets", "namespace": "default"}}
    path = f"/{cluster}/apis/authorization.k8s.io/v1/subjectaccessreviews"
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": asked}
    assert view.post(path, body).json["status"]["allowed"] is True
    assert view.post(path, {**body, "spec": {**asked, "user": "bob"}}).json["status"]["allowed"] is False


def test_claimed_bindings_are_all_of_a_workspace_and_those_to_the_export_anyway(
    admin: Api, provider: Api, consumer: Api
) -> None:
    made = claim("apibindings", "apis.kcp.io", "get", "list")
    make_export(provider, "shapes", CIRCLES, claims=[made])
    grant(provider, "worker")
    bind(consumer, provider.cluster, "shapes", [accepted(made)])
    refusing = admin.at(workspace_under(admin, type_="universal"))
    bind(refusing, provider.cluster, "shapes", [accepted(made, "Rejected")])
    applied(consumer, "shapes")
    view = view_of(provider)
    everything = set(names(consumer.get(BINDINGS)))
    assert len(everything) > 1
    eventually(lambda: set(names(view.get(f"/{cluster_of(consumer)}{BINDINGS}"))) == everything, timeout_s=PATIENCE_S)
    assert names(view.get(f"/{cluster_of(refusing)}{BINDINGS}")) == ["shapes"]
    assert len(names(view.get(f"/*{BINDINGS}"))) == len(everything) + 1


# --- end of access ----------------------------------------------------------------------------------------


def test_what_was_bound_once_is_out_of_reach_again(provider: Api, consumer: Api, view: Api) -> None:
    cluster = cluster_of(consumer)
    path = f"/{cluster}{HERE}"
    view.post(path, an_object(CIRCLES, "a"), expect=403)
    bind(consumer, provider.cluster, "shapes")
    view.post(path, an_object(CIRCLES, "a"))
    with view.watch(f"{path}?watch=1") as named, view.watch(f"/*{EVERYWHERE}?watch=1") as wide:
        assert (named.next().name, wide.next().name) == ("a", "a")
        unbind(consumer, "shapes")
        ended(named)
        assert wide.until("DELETED").name == "a"
    for method, url in (("GET", path), ("POST", path), ("DELETE", path), ("GET", f"{path}/a"), ("PUT", f"{path}/a")):
        view.send(method, url, an_object(CIRCLES, "a") if method in {"POST", "PUT"} else None, expect=403)


def test_while_a_binding_goes_its_provider_lets_go_of_what_he_holds(provider: Api, consumer: Api, view: Api) -> None:
    bind(consumer, provider.cluster, "shapes")
    path = f"/{cluster_of(consumer)}{HERE}"
    held = an_object(CIRCLES, "held")
    held["metadata"]["finalizers"] = ["shapes.example.com/held"]
    view.post(path, held)
    consumer.delete(f"{BINDINGS}/shapes")
    wait(consumer, f"{HERE}/held", lambda obj: obj["metadata"].get("deletionTimestamp"))
    assert view.send("POST", path, an_object(CIRCLES, "late")).code in {403, 405}
    view.patch(f"{path}/held", {"metadata": {"finalizers": None}})
    eventually(lambda: consumer.get(f"{BINDINGS}/shapes", expect=0).code == 404, "unbound", PATIENCE_S)


def test_a_claim_that_is_withdrawn_ends_what_it_opened(provider: Api, consumer: Api) -> None:
    view, cluster = claiming(provider, consumer, accepted(claim("configmaps")))
    consumer.post(CONFIGMAPS, configmap("a"))
    path = f"/{cluster}{CONFIGMAPS}"
    with view.watch(f"{path}?watch=1") as named, view.watch("/*/api/v1/configmaps?watch=1") as wide:
        rejected = [accepted(claim("configmaps"), "Rejected")]
        consumer.patch(f"{BINDINGS}/shapes", {"spec": {"permissionClaims": rejected}})
        view.get(f"{path}/a", expect=403)
        ended(named)
        while (gone := wide.until("DELETED")).name != "a":
            pass
        assert gone.object["metadata"]["annotations"]["kcp.io/cluster"] == cluster
    assert "a" not in names(view.get("/*/api/v1/configmaps"))


def test_a_claim_that_the_export_drops_ends_for_everybody(provider: Api, consumer: Api) -> None:
    view, cluster = claiming(provider, consumer, accepted(claim("configmaps")), claim("secrets"))
    with (
        view.watch(f"/{cluster}{CONFIGMAPS}?watch=1") as named,
        view.watch("/*/api/v1/configmaps?watch=1") as wide,
        view.watch(f"/*{EVERYWHERE}?watch=1") as other,
    ):
        provider.patch(f"{EXPORTS}/shapes", {"spec": {"permissionClaims": [claim("secrets")]}})
        ended(named)
        ended(wide)
        view.get(f"/{cluster}{CONFIGMAPS}", expect=403)
        view.get("/*/api/v1/configmaps", expect=404)
        consumer.post(HERE, an_object(CIRCLES, "a"))
        assert other.next().name == "a"


@pytest.mark.parametrize("what", ["the role", "the binding of the role", "the export"])
def test_every_watch_ends_with_the_right_to_the_content(provider: Api, consumer: Api, what: str) -> None:
    make_export(provider, "shapes", CIRCLES)
    name = grant(provider, "worker")
    grant(provider, "alice")
    bind(consumer, provider.cluster, "shapes")
    view, path = view_of(provider), f"/{cluster_of(consumer)}{HERE}"
    alice = view_of(provider, token="alice-token")
    with (
        view.watch(f"{path}?watch=1") as named,
        view.watch(f"/*{EVERYWHERE}?watch=1") as wide,
        alice.watch(f"/*{EVERYWHERE}?watch=1") as others,
    ):
        give(provider, "bob", {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]})
        consumer.post(HERE, an_object(CIRCLES, "a"))
        assert (named.next().name, wide.next().name, others.next().name) == ("a", "a", "a")
        gone = {
            "the role": f"{RBAC}/clusterroles/{name}",
            "the binding of the role": f"{RBAC}/clusterrolebindings/{name}",
            "the export": f"{EXPORTS}/shapes",
        }[what]
        provider.delete(gone)
        ended(named)
        ended(wide)
        view.get(f"/*{EVERYWHERE}", expect=403 if what != "the export" else 404)
        if what != "the export":
            consumer.post(HERE, an_object(CIRCLES, "b"))
            assert others.next().name == "b"


# --- separation of exports --------------------------------------------------------------------------------


def test_two_exports_of_one_kind_never_see_each_other(admin: Api, provider: Api, consumer: Api) -> None:
    other = admin.at(workspace_under(admin, type_="universal"))
    others_consumer = admin.at(workspace_under(admin, type_="universal"))
    for home, user, customer in ((provider, "worker", consumer), (other, "alice", others_consumer)):
        make_export(home, "shapes", CIRCLES)
        grant(home, user)
        bind(customer, home.cluster, "shapes")
    mine, theirs = view_of(provider), view_of(other, token="alice-token")
    with mine.watch(f"/*{EVERYWHERE}?watch=1") as seen, theirs.watch(f"/*{EVERYWHERE}?watch=1") as seen_there:
        consumer.post(HERE, an_object(CIRCLES, "mine"))
        others_consumer.post(HERE, an_object(CIRCLES, "theirs"))
        assert (seen.next().name, seen_there.next().name) == ("mine", "theirs")
        others_consumer.delete(f"{HERE}/theirs")
        consumer.delete(f"{HERE}/mine")
        assert [(event.type, event.name) for event in (seen.next(), seen_there.next())] == [
            ("DELETED", "mine"),
            ("DELETED", "theirs"),
        ]
    for view, customer in ((mine, others_consumer), (theirs, consumer)):
        assert names(view.get(f"/*{EVERYWHERE}")) == []
        path = f"/{cluster_of(customer)}{HERE}"
        for method in ("GET", "POST", "DELETE"):
            view.send(method, path, an_object(CIRCLES, "x") if method == "POST" else None, expect=403)
    mine.prefix = theirs.prefix
    mine.get(f"/*{EVERYWHERE}", expect=403)


def test_a_claimed_kind_of_somebody_else_is_under_his_policy(admin: Api, provider: Api, consumer: Api) -> None:
    squares = schema("squares", "else.example.com")
    other = admin.at(workspace_under(admin, type_="universal"))
    made = make_export(other, "elsewhere", squares, maximalPermissionPolicy={"local": {}})
    wanted = claim("squares", "else.example.com", identity=made["status"]["identityHash"])
    make_export(provider, "shapes", CIRCLES, claims=[wanted])
    grant(provider, "worker")
    bind(consumer, other.cluster, "elsewhere")
    bind(consumer, provider.cluster, "shapes", [accepted(wanted)])
    applied(consumer, "shapes")
    view, path = view_of(provider), objects_path(squares)
    named, wide = f"/{cluster_of(consumer)}{path}", f"/*{objects_path(squares, namespace='')}"
    view.get(named, expect=403)
    view.get(wide, expect=403)
    consumer.post(path, an_object(squares, "a"), expect=403)
    rule = {"apiGroups": ["else.example.com"], "resources": ["squares"], "verbs": ["*"]}
    give(other, "apis.kcp.io:binding:system:kcp:admin", rule, subject="Group")
    consumer.post(path, an_object(squares, "a"))
    view.get(wide, expect=403)
    view.get(named, expect=403)
    name = give(other, "apis.kcp.io:binding:worker", {**rule, "verbs": ["get", "list", "watch"]})
    eventually(lambda: names(view.get(wide)) == ["a"], "the claimed object is labelled", PATIENCE_S)
    assert names(view.get(named)) == ["a"]
    view.send("DELETE", f"{named}/a", expect=403)
    with view.watch(f"{named}?watch=1") as in_one, view.watch(f"{wide}?watch=1") as in_all:
        other.delete(f"{RBAC}/clusterrolebindings/{name}")
        ended(in_one)
        ended(in_all)


def test_a_claim_with_an_identity_shows_the_kind_of_that_identity_alone(
    admin: Api, provider: Api, consumer: Api
) -> None:
    squares = schema("squares", "else.example.com")
    homes = [admin.at(workspace_under(admin, type_="universal")) for _ in range(2)]
    made = [make_export(home, "elsewhere", squares) for home in homes]
    wanted = claim("squares", "else.example.com", identity=made[0]["status"]["identityHash"])
    make_export(provider, "shapes", CIRCLES, claims=[wanted])
    grant(provider, "worker")
    view = view_of(provider)
    customers = (consumer, admin.at(workspace_under(admin, type_="universal")))
    for home, customer in zip(homes, customers, strict=True):
        bind(customer, home.cluster, "elsewhere")
        bind(customer, provider.cluster, "shapes", [accepted(wanted)])
        customer.post(objects_path(squares), an_object(squares, "a"))
    wide = f"/*{objects_path(squares, namespace='')}"
    eventually(lambda: names(view.get(wide)), "the claimed object is labelled", PATIENCE_S)
    (item,) = view.get(wide).json["items"]
    assert item["metadata"]["annotations"]["kcp.io/cluster"] == cluster_of(customers[0])
    view.get(f"/{cluster_of(customers[1])}{objects_path(squares)}/a", expect=404)


def test_a_claimed_kind_is_served_once_somebody_exports_it(admin: Api, provider: Api) -> None:
    squares, key = schema("squares", "else.example.com"), secrets.token_hex()
    wanted = claim("squares", "else.example.com", identity=hashlib.sha256(key.encode()).hexdigest())
    make_export(provider, "shapes", CIRCLES, claims=[wanted])
    grant(provider, "worker")
    view, wide = view_of(provider), f"/*{objects_path(squares, namespace='')}"
    view.get(wide, expect=404)
    other = admin.at(workspace_under(admin, type_="universal"))
    secret = {"metadata": {"name": "own"}, "stringData": {"key": key}}
    other.post("/api/v1/namespaces/default/secrets", {"apiVersion": "v1", "kind": "Secret", **secret})
    make_export(other, "elsewhere", squares, identity={"secretRef": {"name": "own", "namespace": "default"}})
    assert names(view.get(wide)) == []
    with view.watch(f"{wide}?watch=1") as events:
        other.delete(f"{EXPORTS}/elsewhere")
        ended(events)
    view.get(wide, expect=404)


def test_an_inactive_workspace_is_closed_to_the_view_too(provider: Api, consumer: Api, view: Api, master: Api) -> None:
    bind(consumer, provider.cluster, "shapes")
    path, cluster = f"/{cluster_of(consumer)}{HERE}", cluster_of(consumer)
    with view.watch(f"{path}?watch=1") as named, view.watch(f"/*{EVERYWHERE}?watch=1") as wide:
        inactive = {"metadata": {"annotations": {"core.kcp.io/inactive": "true"}}}
        master.at(cluster).patch("/apis/core.kcp.io/v1alpha1/logicalclusters/cluster", inactive)
        ended(named)
        ended(wide)
    assert "inactive" in view.get(path, expect=403).message
    assert "inactive" in view.post(path, an_object(CIRCLES, "a"), expect=403).message


@pytest.mark.long
def test_the_audit_log_says_who_asked_and_at_which_step_he_was_refused(
    provider: Api, consumer: Api, view: Api, audit_path: Path
) -> None:
    cluster = cluster_of(consumer)
    refused = view.get(f"/{cluster}{HERE}", expect=403).header("audit-id")
    bind(consumer, provider.cluster, "shapes")
    allowed = view.get(f"/{cluster}{HERE}").header("audit-id")

    def events() -> dict[str, dict[str, Any]]:
        return {line["auditID"]: line for line in audit_events(audit_path) if line["stage"] == "ResponseComplete"}

    found = eventually(lambda: events().keys() >= {refused, allowed} and events(), timeout_s=PATIENCE_S)
    step = "virtual.apiexport.boundapi.authorization.kcp.io"
    assert found[refused]["annotations"][f"{step}/decision"] == "Denied"
    assert found[allowed]["annotations"][f"{step}/decision"] == "Allowed"
    user = found[allowed]["user"]
    assert user["username"] == "worker"
    assert user["extra"]["experimental.authorization.kcp.io/original-username"] == ["worker"]


def test_whoever_has_the_content_enters_the_providers_workspace_too(provider: Api) -> None:
    make_export(provider, "shapes", CIRCLES)
    rule = {"apiGroups": ["apis.kcp.io"], "resources": ["apiexports/content"], "verbs": ["*"]}
    give(provider, "worker", rule)
    path, view = f"/*{objects_path(CIRCLES, namespace='')}", view_of(provider)
    provider.get(f"{EXPORTS}/shapes")
    assert view.send("GET", path).code == 403
    give(provider, "worker", ENTER)
    view.get(path)
