"""Cached and virtual resources: read-only objects of a provider, at each consumer's own URL and in the view."""

from __future__ import annotations

from typing import Any

import pytest

from harness.clients.api import CRDS, PARTIAL, Api, Object, configmap, crd, define, eventually
from harness.clients.exports import (
    BINDINGS,
    EXPORTS,
    PATIENCE_S,
    SCHEMAS,
    bind,
    cluster_of,
    condition,
    is_true,
    resource_of,
    schema_of,
    unbind,
    wait,
    wait_condition,
)

CACHED = "/apis/cache.kcp.io/v1alpha1/clustercachedresources"
SLICES = "/apis/cache.kcp.io/v1alpha1/clustercachedresourceendpointslices"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
GROUP = "plans.example.com"
PLANS = f"/apis/{GROUP}/v1/plans"
ACCESS = {"nonResourceURLs": ["/"], "verbs": ["access"]}


def definition() -> Object:
    return crd("plans", GROUP, scope="Cluster")


def plan(name: str, **labels: str) -> Object:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Plan",
        "metadata": {"name": name, "labels": labels},
        "spec": {"colour": name},
    }


def cached(name: str = "plans", resource: str = "plans", group: str = GROUP, **spec: Any) -> Object:
    body = {"group": group, "version": "v1", "resource": resource, **spec}
    return {
        "apiVersion": "cache.kcp.io/v1alpha1",
        "kind": "ClusterCachedResource",
        "metadata": {"name": name},
        "spec": body,
    }


def slice_of(name: str = "plans", path: str = "", export_path: str = "") -> Object:
    reference = {"name": "plans", **({"path": path} if path else {})}
    export = {"name": "plans", **({"path": export_path} if export_path else {})}
    return {
        "apiVersion": "cache.kcp.io/v1alpha1",
        "kind": "ClusterCachedResourceEndpointSlice",
        "metadata": {"name": name},
        "spec": {"clusterCachedResource": reference, "export": export},
    }


def offer(provider: Api, **spec: Any) -> str:
    """A resource offered for reading: cached, exported as a virtual resource; the identity of the cached one."""
    define(provider, definition())
    provider.post(CACHED, cached(**spec))
    ready = wait(provider, f"{CACHED}/plans", lambda obj: (obj.get("status") or {}).get("phase") == "Ready")
    identity = str(ready["status"]["identityHash"])
    made = schema_of(definition())
    provider.post(SCHEMAS, made)
    provider.post(SLICES, slice_of())
    reference = {"apiGroup": "cache.kcp.io", "kind": "ClusterCachedResourceEndpointSlice", "name": "plans"}
    virtual = {"virtual": {"reference": reference, "identityHash": identity}}
    body = {
        "apiVersion": "apis.kcp.io/v1alpha2",
        "kind": "APIExport",
        "metadata": {"name": "plans"},
        "spec": {"resources": [resource_of(made, **virtual)]},
    }
    provider.post(EXPORTS, body)
    wait_condition(provider, f"{EXPORTS}/plans", "IdentityValid")
    return identity


def allow(api: Api, user: str, name: str, *rules: Object) -> None:
    api.post(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": list(rules)})
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    body = {"metadata": {"name": name}, "subjects": [subject], "roleRef": reference}
    api.post(f"{RBAC}/clusterrolebindings", body)


def content(*verbs: str) -> Object:
    return {
        "apiGroups": ["apis.kcp.io"],
        "resources": ["apiexports/content"],
        "resourceNames": ["plans"],
        "verbs": list(verbs),
    }


def endpoint(provider: Api) -> str:
    def has_one(obj: Object) -> bool:
        return bool((obj.get("status") or {}).get("endpoints"))

    return str(wait(provider, f"{SLICES}/plans", has_one)["status"]["endpoints"][0]["url"])


def view(provider: Api, cluster: str, token: str = "") -> Api:
    there = Api(provider.shard, token=token or provider.token)
    there.prefix = f"/services/replication/{cluster_of(provider)}/plans/clusters/{cluster}"
    return there


def names(api: Api, path: str = PLANS) -> list[str]:
    return [item["metadata"]["name"] for item in api.get(path).json["items"]]


def test_a_cached_resource_says_what_it_offers(provider: Api) -> None:
    define(provider, definition())
    for name in ("gold", "silver"):
        provider.post(PLANS, plan(name, tier=name))
    provider.post(CACHED, cached(labelSelector={"matchLabels": {"tier": "gold"}}))
    ready = wait(provider, f"{CACHED}/plans", lambda obj: (obj.get("status") or {}).get("phase") == "Ready")
    assert ready["status"]["resourceCounts"] == {"cache": 1, "local": 1}
    assert ready["metadata"]["finalizers"] == ["cache.kcp.io/clustercachedresource"]
    assert ready["spec"]["identity"] == {"secretRef": {"namespace": "kcp-system", "name": "plans"}}
    for type in ("IdentityValid", "ReplicationStarted", "ResourceValid"):
        assert is_true(ready, type), ready["status"]
    provider.post(PLANS, plan("golden", tier="gold"))
    wait(provider, f"{CACHED}/plans", lambda obj: obj["status"]["resourceCounts"] == {"cache": 2, "local": 2})
    provider.patch(f"{CACHED}/plans", {"spec": {"labelSelector": None}})
    wait(provider, f"{CACHED}/plans", lambda obj: obj["status"]["resourceCounts"]["local"] == 3)
    provider.delete(f"{CACHED}/plans")
    eventually(lambda: provider.get(f"{CACHED}/plans", expect=0).code == 404, "gone", PATIENCE_S)


def test_a_resource_that_is_not_there_is_awaited(provider: Api) -> None:
    provider.post(CACHED, cached())
    missing = wait_condition(provider, f"{CACHED}/plans", "ResourceValid", "False", "NoResources")
    assert missing["status"]["phase"] == "Initializing"
    define(provider, definition())
    wait(provider, f"{CACHED}/plans", lambda obj: obj["status"]["phase"] == "Ready")


def test_only_one_and_only_cluster_scoped(provider: Api) -> None:
    define(provider, definition())
    refused = provider.post(CACHED, cached(resource="configmaps", group=""), expect=403)
    assert "must be cluster-scoped" in refused.message
    provider.post(CACHED, cached())
    assert "already" in provider.post(CACHED, cached("again"), expect=403).message


def test_who_may_not_list_a_resource_does_not_offer_it(provider: Api, consumer: Api) -> None:
    define(provider, definition())
    own = {"apiGroups": ["cache.kcp.io"], "resources": ["*"], "verbs": ["*"]}
    allow(provider, "bob", "caching", own, ACCESS)
    bob = Api(provider.shard, provider.cluster, token="bob-token")
    assert "no permission to list" in bob.post(CACHED, cached(), expect=403).message
    allow(provider, "bob", "listing", {"apiGroups": [GROUP], "resources": ["plans"], "verbs": ["list"]})
    bob.post(CACHED, cached())


def test_a_secret_of_another_key_is_told(provider: Api) -> None:
    define(provider, definition())
    provider.post(CACHED, cached())
    wait_condition(provider, f"{CACHED}/plans", "IdentityValid")
    secret = "/api/v1/namespaces/kcp-system/secrets/plans"
    provider.patch(secret, {"data": {"key": "YW5vdGhlcg=="}})
    wait_condition(provider, f"{CACHED}/plans", "IdentityValid", "False", "IdentityVerificationFailed")


def test_a_consumer_reads_the_providers_objects_at_its_own_url(provider: Api, consumer: Api) -> None:
    offer(provider)
    provider.post(PLANS, plan("gold"))
    bound = bind(consumer, provider.cluster, "plans")
    assert bound["status"]["boundResources"][0].get("storageVersions", []) == []
    endpoint(provider)
    assert names(consumer) == ["gold"]
    mine, original = consumer.get(f"{PLANS}/gold").json, provider.get(f"{PLANS}/gold").json
    assert presented_cluster(mine) == cluster_of(consumer)
    assert presented_cluster(original) == cluster_of(provider)
    original["metadata"]["annotations"]["kcp.io/cluster"] = cluster_of(consumer)
    assert mine == original
    consumer.get(f"{PLANS}/silver", expect=404)
    with consumer.watch(
        f"{PLANS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    ) as events:
        assert events.next().name == "gold"
        assert events.next().type == "BOOKMARK"
        provider.post(PLANS, plan("silver"))
        added = events.next()
        assert (added.type, added.name) == ("ADDED", "silver")
        provider.delete(f"{PLANS}/gold")
        assert events.until("DELETED").name == "gold"


def presented_cluster(obj: Object) -> str:
    return str(obj["metadata"]["annotations"]["kcp.io/cluster"])


def test_a_consumer_sees_its_own_cluster_on_pages_and_in_watches(provider: Api, consumer: Api) -> None:
    offer(provider)
    for number in range(5):
        provider.post(PLANS, plan(f"plan-{number}", tier="gold" if number != 2 else "lead"))
    bind(consumer, provider.cluster, "plans")
    endpoint(provider)
    own, exported, views = cluster_of(consumer), Api(provider.shard, token=provider.token), view(provider, "*")
    exported.prefix = f"/services/apiexport/{cluster_of(provider)}/plans/clusters/{own}"
    for reader in (consumer, exported, view(provider, own)):
        for selector, expected in (("", [0, 1, 2, 3, 4]), ("&labelSelector=tier%3Dgold", [0, 1, 3, 4])):
            found: list[Object] = []
            token = ""
            while token or not found:
                page = reader.get(f"{PLANS}?limit=2{selector}&continue={token}").json
                found.extend(page["items"])
                token = page["metadata"].get("continue", "")
            assert [each["metadata"]["name"] for each in found] == [f"plan-{number}" for number in expected]
            assert {presented_cluster(each) for each in found} == {own}
        assert presented_cluster(reader.get(f"{PLANS}/plan-0", accept=PARTIAL).json) == own
    assert {presented_cluster(each) for each in views.get(PLANS).json["items"]} == {cluster_of(provider)}
    revision = consumer.get(PLANS).json["metadata"]["resourceVersion"]
    with consumer.watch(f"{PLANS}?watch=1&resourceVersion={revision}") as events:
        provider.post(PLANS, plan("later"))
        provider.patch(f"{PLANS}/later", {"metadata": {"labels": {"x": "y"}}})
        provider.delete(f"{PLANS}/later")
        seen = events.take(3)
    assert [(event.type, presented_cluster(event.object)) for event in seen] == [
        ("ADDED", own),
        ("MODIFIED", own),
        ("DELETED", own),
    ]


def test_it_is_read_only_in_verbs_discovery_and_openapi(provider: Api, consumer: Api) -> None:
    offer(provider)
    bind(consumer, provider.cluster, "plans")
    endpoint(provider)
    for method, path in (("POST", PLANS), ("PUT", f"{PLANS}/x"), ("PATCH", f"{PLANS}/x"), ("DELETE", f"{PLANS}/x")):
        assert consumer.send(method, path, plan("x")).code in {403, 405}
    resources = consumer.get(f"/apis/{GROUP}/v1").json["resources"]
    assert [(each["name"], each["verbs"]) for each in resources] == [("plans", ["get", "list", "watch"])]
    document = consumer.get(f"/openapi/v3/apis/{GROUP}/v1").json
    assert sorted(method for method in document["paths"][PLANS] if method != "parameters") == ["get"]
    assert f"{GROUP.split('.')[1]}" in consumer.get("/openapi/v2").body.decode()


def test_a_selector_decides_and_a_watch_follows_its_change(provider: Api, consumer: Api) -> None:
    offer(provider, labelSelector={"matchLabels": {"tier": "gold"}})
    for name in ("gold", "silver"):
        provider.post(PLANS, plan(name, tier=name))
    bind(consumer, provider.cluster, "plans")
    endpoint(provider)
    assert names(consumer) == ["gold"]
    revision = consumer.get(PLANS).json["metadata"]["resourceVersion"]
    with consumer.watch(f"{PLANS}?watch=1&resourceVersion={revision}") as events:
        provider.patch(f"{CACHED}/plans", {"spec": {"labelSelector": {"matchLabels": {"tier": "silver"}}}})
        assert {(event.type, event.name) for event in events.take(2)} == {("DELETED", "gold"), ("ADDED", "silver")}
        provider.patch(f"{PLANS}/gold", {"metadata": {"labels": {"tier": "silver"}}})
        joined = events.next()
        assert (joined.type, joined.name) == ("ADDED", "gold")
    consumer.get(f"{PLANS}/silver")


def test_without_an_endpoint_the_consumer_is_sent_to_the_provider(provider: Api, consumer: Api) -> None:
    offer(provider)
    bind(consumer, provider.cluster, "plans")
    endpoint(provider)
    provider.delete(f"{SLICES}/plans")
    refused = consumer.get(PLANS, expect=500)
    assert refused.message == (
        f"error resolving resource {GROUP}/v1, Resource=plans; please contact APIExport owner to resolve"
    )


def test_a_circle_of_forwards_ends(provider: Api, consumer: Api) -> None:
    offer(provider)
    bind(consumer, provider.cluster, "plans")
    endpoint(provider)
    for hops, code in (("3", 200), ("4", 500), ("5", 500), ("x", 500)):
        consumer.get(PLANS, expect=code, headers={"X-Kcp-Virtual-Resource-Hops": hops})


def test_the_view_asks_for_content_and_for_a_binding(provider: Api, consumer: Api) -> None:
    offer(provider)
    provider.post(PLANS, plan("gold"))
    there, everywhere = view(provider, cluster_of(consumer), "bob-token"), view(provider, "*", "bob-token")
    there.get(PLANS, expect=403)
    allow(provider, "bob", "content", content("get", "list"), ACCESS)
    everywhere.get(f"{PLANS}?watch=1", expect=403)
    assert names(everywhere) == ["gold"]
    there.get(PLANS, expect=403)
    bind(consumer, provider.cluster, "plans")
    assert names(there) == ["gold"]
    assert there.get(f"{PLANS}/gold").json["metadata"]["name"] == "gold"
    unbind(consumer, "plans")
    there.get(PLANS, expect=403)


def test_the_provider_sees_it_in_the_view_of_its_export_too(provider: Api, consumer: Api) -> None:
    offer(provider)
    provider.post(PLANS, plan("gold"))
    bind(consumer, provider.cluster, "plans")
    endpoint(provider)
    there = Api(provider.shard, token=provider.token)
    for cluster in ("*", cluster_of(consumer)):
        there.prefix = f"/services/apiexport/{cluster_of(provider)}/plans/clusters/{cluster}"
        assert names(there) == ["gold"]
        verbs = {each["name"]: each["verbs"] for each in there.get(f"/apis/{GROUP}/v1").json["resources"]}
        assert verbs == {"plans": ["get", "list", "watch"]}
    with there.watch(f"{PLANS}?watch=1") as events:
        assert events.next().name == "gold"
        provider.post(PLANS, plan("silver"))
        assert events.next().name == "silver"


def test_a_consumer_needs_both_its_own_rights_and_the_content(provider: Api, consumer: Api) -> None:
    offer(provider)
    provider.post(PLANS, plan("gold"))
    bind(consumer, provider.cluster, "plans")
    endpoint(provider)
    bob = Api(consumer.shard, consumer.cluster, token="bob-token")
    bob.get(PLANS, expect=403)
    allow(consumer, "bob", "plans", ACCESS, {"apiGroups": [GROUP], "resources": ["plans"], "verbs": ["list"]})
    bob.get(PLANS, expect=403)
    allow(provider, "bob", "content", content("list"), ACCESS)
    assert names(bob) == ["gold"]
    bob.get(f"{PLANS}/gold", expect=403)


def test_an_open_watch_ends_with_the_binding(provider: Api, consumer: Api) -> None:
    offer(provider)
    provider.post(PLANS, plan("gold"))
    bind(consumer, provider.cluster, "plans")
    endpoint(provider)
    with consumer.watch(f"{PLANS}?watch=1") as events:
        assert events.next().name == "gold"
        unbind(consumer, "plans")
        assert [event.type for event in events.rest() if event.type == "ADDED"] == []


@pytest.mark.long
def test_a_workspace_that_caches_is_deleted_like_any_other(provider: Api, consumer: Api) -> None:
    offer(provider)
    bind(consumer, provider.cluster, "plans")
    endpoint(provider)
    parent, _, name = provider.cluster.rpartition(":")
    path = f"/apis/tenancy.kcp.io/v1alpha1/workspaces/{name}"
    above = provider.at(parent)
    above.delete(path)
    eventually(lambda: above.get(path, expect=0).code == 404, "the workspace is gone", PATIENCE_S)
    consumer.get(PLANS, expect=500)


@pytest.mark.long
def test_what_a_virtual_object_owns_is_kept(provider: Api, consumer: Api) -> None:
    offer(provider)
    provider.post(PLANS, plan("gold"))
    bind(consumer, provider.cluster, "plans")
    endpoint(provider)
    uid = consumer.get(f"{PLANS}/gold").json["metadata"]["uid"]
    owner = {"apiVersion": f"{GROUP}/v1", "kind": "Plan", "name": "gold", "uid": uid}
    configmaps = "/api/v1/namespaces/default/configmaps"
    consumer.post(configmaps, configmap("owned", ownerReferences=[owner]))
    stray = {"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": uid}
    consumer.post(configmaps, configmap("stray", ownerReferences=[stray]))
    eventually(lambda: consumer.get(f"{configmaps}/stray", expect=0).code == 404, "the stray is collected", PATIENCE_S)
    consumer.get(f"{configmaps}/owned")


def test_nobody_gives_away_what_another_workspace_caches(provider: Api, consumer: Api) -> None:
    identity = offer(provider)
    provider.post(PLANS, plan("gold"))
    made = schema_of(definition())
    consumer.post(SCHEMAS, made)
    reference = {"apiGroup": "cache.kcp.io", "kind": "ClusterCachedResourceEndpointSlice", "name": "plans"}
    virtual = {"virtual": {"reference": reference, "identityHash": identity}}
    body = {
        "apiVersion": "apis.kcp.io/v1alpha2",
        "kind": "APIExport",
        "metadata": {"name": "plans"},
        "spec": {"resources": [resource_of(made, **virtual)]},
    }
    consumer.post(EXPORTS, body)
    consumer.post(SLICES, slice_of(path=provider.cluster))
    bind(consumer, consumer.cluster, "plans", called="own")
    # Each reference is valid; together they publish nothing.
    for type in ("ResourceValid", "APIExportValid", "PartitionValid"):
        found = wait_condition(consumer, f"{SLICES}/plans", type)
    assert not found["status"].get("endpoints")
    allow(consumer, "bob", "content", content("*"), ACCESS)
    view(consumer, "*", "bob-token").get(PLANS, expect=403)


@pytest.mark.long
def test_a_slice_tells_what_it_lacks_and_where_its_endpoint_is(provider: Api, consumer: Api) -> None:
    provider.post(SLICES, slice_of())
    lacking = wait_condition(provider, f"{SLICES}/plans", "ResourceValid", "False", "ClusterCachedResourceNotFound")
    assert condition(lacking, "APIExportValid")["reason"] == "APIExportInvalidReference"
    consumer.post(SLICES, slice_of(path=provider.cluster))
    wait_condition(consumer, f"{SLICES}/plans", "ResourceValid", "False", "ClusterCachedResourceNotFound")
    provider.delete(f"{SLICES}/plans")
    offer(provider)
    half = wait_condition(consumer, f"{SLICES}/plans", "ResourceValid")
    assert condition(half, "APIExportValid")["reason"] == "APIExportInvalidReference"
    assert not half["status"].get("endpoints")
    for type in ("ResourceValid", "APIExportValid", "PartitionValid"):
        sound = wait_condition(provider, f"{SLICES}/plans", type)
    assert not sound["status"].get("endpoints")
    bind(consumer, provider.cluster, "plans")
    assert endpoint(provider) == f"{provider.shard.url}/services/replication/{cluster_of(provider)}/plans"
    unbind(consumer, "plans")
    wait(provider, f"{SLICES}/plans", lambda obj: not obj["status"].get("endpoints"))


def test_an_endpoint_of_an_inactive_provider_is_closed(provider: Api, consumer: Api, master: Api) -> None:
    offer(provider)
    provider.post(PLANS, plan("gold"))
    bind(consumer, provider.cluster, "plans")
    endpoint(provider)
    home = master.at(cluster_of(provider))
    mark = {"metadata": {"annotations": {"core.kcp.io/inactive": "true"}}}
    with consumer.watch(f"{PLANS}?watch=1") as events:
        assert events.next().name == "gold"
        home.patch("/apis/core.kcp.io/v1alpha1/logicalclusters/cluster", mark)
        assert events.rest() == []
    consumer.get(PLANS, expect=403)


@pytest.mark.parametrize("path", [BINDINGS, CRDS, "/api/v1/configmaps", "/metrics"])
def test_nothing_but_the_resource_is_behind_the_view(provider: Api, consumer: Api, path: str) -> None:
    offer(provider)
    bind(consumer, provider.cluster, "plans")
    there = view(provider, cluster_of(consumer))
    assert there.get(path, expect=0).code in {403, 404}
