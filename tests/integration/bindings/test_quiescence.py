"""After many changes of exports, bindings, claims, slices and default bindings, controllers stop writing. They do not
write again after a restart or a crash.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.api import CRDS, Api, configmap, crd, define, eventually, workspace_under
from harness.clients.exports import (
    BINDINGS,
    EXPORTS,
    PATIENCE_S,
    SLICES,
    accepted,
    an_object,
    bind,
    binding,
    claim,
    cluster_of,
    export,
    make_export,
    objects_path,
    resource_of,
    schema,
    schema_of,
    unbind,
    wait,
    wait_bound,
    wait_condition,
)
from harness.servers.shard_process import ShardProcess

TYPES, WORKSPACES = (f"/apis/tenancy.kcp.io/v1alpha1/{plural}" for plural in ("workspacetypes", "workspaces"))
CACHE, TOPOLOGY = "cache.kcp.io/v1alpha1", "topology.kcp.io/v1alpha1"
CACHED, CACHED_SLICES = (
    f"/apis/{CACHE}/{plural}" for plural in ("clustercachedresources", "clustercachedresourceendpointslices")
)
MAPS = "/api/v1/namespaces/default/configmaps"
CIRCLES, LATER, SQUARES = schema("circles"), schema("circles", prefix="later"), schema("squares")
CLAIMED = claim("configmaps"), claim("secrets", defaultSelector={"matchLabels": {"open": "yes"}})
#: The quiet period without writes, and the poll interval: longer than any requeue delay of a controller; the limit.
QUIET_S, QUIET_LOOKS, REST_S = 6.0, 20, 120.0


@pytest.fixture
def own(tmp_path: Path) -> Iterator[ShardProcess]:
    with ShardProcess(tmp_path) as running:
        yield running


def revision(shard: ShardProcess) -> int:
    """The latest revision of the shard, which any list has."""
    api = Api(shard, "root", "shard-admin")
    try:
        return int(api.get("/apis/core.kcp.io/v1alpha1/shards").json["metadata"]["resourceVersion"])
    finally:
        api.close()


def rest(shard: ShardProcess) -> int:
    """Wait until writes stop; return the revision."""
    begun_s = since_s = time.monotonic()
    last, looks = revision(shard), 0
    while looks < QUIET_LOOKS or time.monotonic() - since_s < QUIET_S:
        assert time.monotonic() - begun_s < REST_S, "somebody writes for ever"
        time.sleep(0.2)
        now, looks = revision(shard), looks + 1
        if now != last:
            last, looks, since_s = now, 0, time.monotonic()
    return last


def share(provider: Api) -> None:
    """Create exports with offers and claims, changed and restored; slices, and PartitionSets."""
    make_export(provider, "one", CIRCLES, claims=CLAIMED)
    make_export(provider, "two", SQUARES)
    make_export(provider, "rival", schema("circles", prefix="rival"))
    path = {"export": {"path": provider.cluster, "name": "one"}}
    kind = {"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIExportEndpointSlice"}
    provider.post(SLICES, {**kind, "metadata": {"name": "mine"}, "spec": path})
    provider.post(SLICES, {**kind, "metadata": {"name": "parted"}, "spec": {**path, "partition": "none"}})
    sets = {"apiVersion": TOPOLOGY, "kind": "PartitionSet", "metadata": {"name": "all"}, "spec": {"dimensions": []}}
    provider.post(f"/apis/{TOPOLOGY}/partitionsets", sets)


def offer_cached(provider: Api) -> None:
    definition = crd("plans", "plans.example.com", scope="Cluster")
    define(provider, definition)
    spec = {"group": "plans.example.com", "version": "v1", "resource": "plans"}
    made = {"apiVersion": CACHE, "kind": "ClusterCachedResource", "metadata": {"name": "plans"}, "spec": spec}
    provider.post(CACHED, made)
    ready = wait(provider, f"{CACHED}/plans", lambda obj: (obj.get("status") or {}).get("phase") == "Ready")
    shape = schema_of(definition)
    provider.post("/apis/apis.kcp.io/v1alpha1/apiresourceschemas", shape)
    offered = {"clusterCachedResource": {"name": "plans"}, "export": {"name": "plans"}}
    kind = "ClusterCachedResourceEndpointSlice"
    provider.post(CACHED_SLICES, {"apiVersion": CACHE, "kind": kind, "metadata": {"name": "plans"}, "spec": offered})
    reference = {"apiGroup": "cache.kcp.io", "kind": kind, "name": "plans"}
    virtual = {"virtual": {"reference": reference, "identityHash": ready["status"]["identityHash"]}}
    body = export("plans", shape)
    body["spec"]["resources"] = [resource_of(shape, **virtual)]
    provider.post(EXPORTS, body)
    wait_condition(provider, f"{EXPORTS}/plans", "IdentityValid")
    for name in ("a", "b"):
        plan = {"apiVersion": "plans.example.com/v1", "kind": "Plan", "metadata": {"name": name}, "spec": {}}
        provider.post("/apis/plans.example.com/v1/plans", plan)


def use(provider: Api, consumer: Api) -> None:
    """Bindings that are bound, refused, withdrawn, that wait for nothing, and objects under claims."""
    granted = [accepted(CLAIMED[0]), accepted(CLAIMED[1], matchLabels={"open": "no"})]
    bind(consumer, provider.cluster, "one", granted)
    bind(consumer, provider.cluster, "two")
    bind(consumer, provider.cluster, "plans")
    consumer.post(BINDINGS, binding(provider.cluster, "rival"))
    Api(consumer.shard, consumer.cluster, "shard-admin").post(BINDINGS, binding("root:nowhere:at:all", "lost"))
    consumer.post(CRDS, crd("circles"))
    for name in ("a", "b", "c"):
        consumer.post(MAPS, configmap(name))
        consumer.post(objects_path(CIRCLES), an_object(CIRCLES, name))
    wait_condition(consumer, f"{BINDINGS}/one", "PermissionClaimsApplied")
    rejected = [accepted(CLAIMED[0], "Rejected"), granted[1]]
    consumer.patch(f"{BINDINGS}/one", {"spec": {"permissionClaims": rejected}})
    unbind(consumer, "two")


def maintained(provider: Api) -> Api:
    """A workspace whose type maintains its default bindings."""
    spec = {
        "extend": {"with": [{"name": "universal", "path": "root"}]},
        "defaultAPIBindingLifecycle": "Maintain",
        "defaultAPIBindings": [{"export": "one"}, {"export": "two"}],
    }
    kind = {"apiVersion": "tenancy.kcp.io/v1alpha1"}
    provider.post(TYPES, {**kind, "kind": "WorkspaceType", "metadata": {"name": "kept"}, "spec": spec})
    asked = {"type": {"name": "kept", "path": provider.cluster}}
    provider.post(WORKSPACES, {**kind, "kind": "Workspace", "metadata": {"name": "kept"}, "spec": asked})
    wait(provider, f"{WORKSPACES}/kept", lambda obj: (obj.get("status") or {}).get("phase") == "Ready")
    return provider.at(f"{provider.cluster}:kept")


def change(provider: Api) -> None:
    """Change a schema and the claims; delete an export and create it again with its identity."""
    provider.post("/apis/apis.kcp.io/v1alpha1/apiresourceschemas", LATER)
    resources = [resource_of(LATER)]
    provider.patch(f"{EXPORTS}/one", {"spec": {"resources": resources, "permissionClaims": [CLAIMED[0]]}})
    provider.patch(f"{EXPORTS}/one", {"metadata": {"annotations": {"extra.apis.kcp.io/colour": "red"}}})
    again = export("one", claims=CLAIMED)
    again["spec"]["resources"] = resources
    provider.delete(f"{EXPORTS}/one")
    provider.post(EXPORTS, again)
    wait_condition(provider, f"{EXPORTS}/one", "IdentityValid")


def gone(api: Api, path: str) -> None:
    eventually(lambda: api.get(path, expect=0).code == 404, f"{path} gone", PATIENCE_S)


@pytest.mark.long
def test_nobody_writes_once_all_is_as_it_should_be_and_nobody_begins_again_after_a_restart(own: ShardProcess) -> None:
    admin = Api(own, "root")
    provider, consumer = (admin.at(workspace_under(admin, type_="universal")) for _ in range(2))
    share(provider)
    offer_cached(provider)
    kept = maintained(provider)
    use(provider, consumer)
    change(provider)
    for api in (consumer, kept):
        for name in [each["metadata"]["name"] for each in api.get(BINDINGS).json["items"]]:
            if name == "one" or name.startswith("one-"):
                wait_bound(api, name)
    before = rest(own)
    names = {name: api.get(BINDINGS).json["items"] for name, api in (("consumer", consumer), ("kept", kept))}
    for end in (own.stop, own.kill):
        end()
        own.start()
        after = rest(own)
        again = Api(own, "root")
        for name, api in (("consumer", again.at(consumer.cluster)), ("kept", again.at(kept.cluster))):
            assert api.get(BINDINGS).json["items"] == names[name]
        assert after == before, "a restart wrote something"
    assert cluster_of(again.at(provider.cluster))


@pytest.mark.long
def test_workspaces_that_provide_and_consume_go_at_once_with_held_objects_and_across_a_crash(own: ShardProcess) -> None:
    admin = Api(own, "root")
    provider, consumer = (admin.at(workspace_under(admin, type_="universal")) for _ in range(2))
    share(provider)
    bind(consumer, provider.cluster, "one", [accepted(each) for each in CLAIMED])
    held = an_object(CIRCLES, "held")
    held["metadata"]["finalizers"] = ["example.com/held"]
    path = f"{objects_path(CIRCLES)}/held"
    consumer.post(objects_path(CIRCLES), held)
    for api in (provider, consumer):
        admin.delete(f"{WORKSPACES}/{api.cluster.rsplit(':', 1)[1]}")
    gone(admin, f"{WORKSPACES}/{provider.cluster.rsplit(':', 1)[1]}")
    # The provider is gone; existing bindings are still served, also after a crash.
    own.kill()
    own.start()
    admin = Api(own, "root")
    consumer = admin.at(consumer.cluster)
    wait(consumer, path, lambda obj: "deletionTimestamp" in obj["metadata"])
    consumer.patch(path, {"metadata": {"finalizers": None}})
    gone(admin, f"{WORKSPACES}/{consumer.cluster.rsplit(':', 1)[1]}")
    rest(own)
