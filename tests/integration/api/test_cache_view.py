"""`/services/cache` on a shard that is alone: its replicated objects, as a cache server would have them."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from harness.clients.api import MERGE, Api, crd, define, eventually, workspace_under
from harness.clients.exports import CACHED, cache_beacons, make_export, schema
from harness.clients.exports import EXPORTS as IN_WORKSPACE
from harness.clients.put_back import check_read_only, objects

EXPORTS = "/apis/apis.kcp.io/v1alpha2/apiexports"
WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
CLUSTERS = "/apis/core.kcp.io/v1alpha1/logicalclusters"
EVERYWHERE = "/shards/*/clusters/*"


def cache(of: Api) -> Api:
    api = Api(of.shard, token=of.token)
    api.prefix = "/services/cache"
    return api


@pytest.fixture
def home(admin: Api) -> Api:
    """A workspace, by its cluster."""
    home = admin.at(workspace_under(admin))
    found = home.get(f"{CLUSTERS}/cluster").json["metadata"]["annotations"]["kcp.io/cluster"]
    return admin.at(found)


def placed(items: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(each["metadata"]["annotations"]["kcp.io/cluster"], each["metadata"]["name"]) for each in items}


def test_masters_see_what_the_shard_replicates_with_its_source(home: Api, master: Api) -> None:
    make_export(home, "shapes", schema("circles"))
    found = cache(master)
    mine = found.get(f"/shards/root/clusters/{home.cluster}{EXPORTS}/shapes").json
    source = home.get(f"{IN_WORKSPACE}/shapes").json
    assert mine["metadata"]["uid"] == source["metadata"]["uid"]
    annotations = mine["metadata"]["annotations"]
    assert annotations["kcp.io/shard"] == "root"
    assert annotations["cache.kcp.io/original-resource-UID"] == source["metadata"]["uid"]
    assert annotations["cache.kcp.io/original-resource-version"] == mine["metadata"]["resourceVersion"]
    assert (mine["kind"], mine["spec"]) == ("APIExport", source["spec"])
    everywhere = found.get(f"{EVERYWHERE}{EXPORTS}").json
    assert {("root", "tenancy.kcp.io"), (home.cluster, "shapes")} <= placed(everywhere["items"])
    assert found.get(f"/shards/*/clusters/{home.cluster}{EXPORTS}").json["items"] == [mine]
    assert found.get(f"/shards/other/clusters/*{EXPORTS}").json["items"] == []
    found.get(f"/shards/other/clusters/{home.cluster}{EXPORTS}/shapes", expect=404)


def test_kinds_of_roots_exports_are_served_and_system_clusters_and_other_roles_are_not(home: Api, master: Api) -> None:
    home.post(ROLES, {"metadata": {"name": "plain"}, "rules": []})
    rules = [{"apiGroups": ["apis.kcp.io"], "resources": ["apiexports"], "verbs": ["bind"], "resourceNames": ["x"]}]
    home.post(ROLES, {"metadata": {"name": "binder"}, "rules": rules})
    found = cache(master)
    workspaces = found.get(f"{EVERYWHERE}{WORKSPACES}").json["items"]
    name = home.get(f"{CLUSTERS}/cluster").json["spec"]["owner"]["name"]
    assert ("root", name) in placed(workspaces)

    def roles() -> bool:
        items = found.get(f"/shards/*/clusters/{home.cluster}{ROLES}").json["items"]
        return placed(items) == {(home.cluster, "binder")}

    eventually(roles, "the role that concerns other shards")
    for path in (ROLES, CLUSTERS, EXPORTS):
        items = found.get(f"{EVERYWHERE}{path}").json["items"]
        assert items
        assert not [cluster for cluster, _ in placed(items) if cluster.startswith("system:")]
    assert found.get(f"/shards/*/clusters/system:admin{ROLES}").json["items"] == []


def test_a_watch_goes_on_from_a_list(home: Api, master: Api) -> None:
    found = cache(master)
    make_export(home, "first", schema("circles"))
    path = f"/shards/root/clusters/*{EXPORTS}"
    revision = found.get(path).json["metadata"]["resourceVersion"]
    with found.watch(f"{path}?watch=1&resourceVersion={revision}") as events:
        home.patch(f"{IN_WORKSPACE}/first", {"metadata": {"labels": {"a": "b"}}}, MERGE)
        home.delete(f"{IN_WORKSPACE}/first")
        seen = [event for event in events.take(2) if event.object["metadata"]["name"] == "first"]
        assert seen[0].object["metadata"]["annotations"]["kcp.io/shard"] == "root"
        while seen[-1].type != "DELETED":
            seen.append(events.next())
    with found.watch(f"/shards/other/clusters/*{EXPORTS}?watch=1&resourceVersion={revision}&timeoutSeconds=1") as none:
        assert none.rest() == []


def test_pages_hold_everything_once(home: Api, master: Api) -> None:
    for number in range(5):
        home.post(ROLES, {"metadata": {"name": f"plain-{number}"}, "rules": []})
    found = cache(master)
    whole = found.get(f"{EVERYWHERE}{CLUSTERS}").json
    pages, token = [], ""
    while True:
        page = found.get(f"{EVERYWHERE}{CLUSTERS}?limit=2&continue={token}").json
        pages.extend(page["items"])
        token = page["metadata"].get("continue", "")
        if not token:
            break
    assert placed(pages) >= placed(whole["items"])
    assert len(pages) == len(placed(pages))


def test_what_a_clustercachedresource_selects_is_there_under_its_uid(home: Api, master: Api, admin: Api) -> None:
    group = f"g{uuid.uuid4().hex[:6]}.example.com"
    path = f"/apis/{group}/v1/beacons"
    identity = cache_beacons(home, group, labelSelector={"matchLabels": {"shown": "yes"}})
    other = admin.at(workspace_under(admin))
    define(other, crd("beacons", group, scope="Cluster"))
    for at, name, labels in ((home, "north", {"shown": "yes"}), (home, "south", {}), (other, "east", {"shown": "yes"})):
        at.post(path, {"apiVersion": f"{group}/v1", "kind": "Beacon", "metadata": {"name": name, "labels": labels}})
    source = home.get(f"{path}/north").json
    found = cache(master)
    for where in (f"/shards/root/clusters/*{path}:{identity}", f"/shards/*/clusters/{home.cluster}{path}"):
        listed = found.get(where).json
        assert placed(listed["items"]) == {(home.cluster, "north")}
        assert listed["kind"] == "BeaconList"
        with found.watch(f"{where}?watch=1&resourceVersion={listed['metadata']['resourceVersion']}") as events:
            home.patch(f"{path}/south", {"metadata": {"labels": {"shown": "yes"}}}, MERGE)
            added = events.next()
            assert (added.type, added.object["metadata"]["name"]) == ("ADDED", "south")
            home.patch(f"{path}/south", {"metadata": {"labels": {"shown": None}}}, MERGE)
            assert events.next().type == "DELETED"
    one = f"/shards/*/clusters/{home.cluster}{path}:{identity}"
    mine = found.get(f"{one}/north").json["metadata"]
    assert mine["uid"] == source["metadata"]["uid"]
    assert mine["annotations"]["cache.kcp.io/original-resource-UID"] == source["metadata"]["uid"]
    assert mine["annotations"]["kcp.io/shard"] == "root"
    found.get(f"{one}/south", expect=404)
    for nothing in (
        f"/shards/*/clusters/*{path}",
        f"/shards/other/clusters/*{path}:{identity}",
        f"/shards/*/clusters/*{path}:{'0' * 64}",
        f"/shards/*/clusters/{other.cluster}{path}",
    ):
        found.get(nothing, expect=404)
    found.delete(f"{one}/north", expect=405)
    found.send("PATCH", f"{one}/north", {}, kind=MERGE, expect=405)
    cache(admin).get(one, expect=403)
    home.delete(f"{CACHED}/beacons")
    eventually(lambda: found.get(one, expect=0).code == 404, "no longer cached")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_nothing_is_written_there(home: Api, master: Api, method: str) -> None:
    make_export(home, "shapes", schema("circles"))
    found, collection = cache(master), f"/shards/root/clusters/{home.cluster}{EXPORTS}"
    name = "" if method == "POST" else "/shapes"
    found.send(method, f"{collection}{name}", {"metadata": {"name": "shapes"}}, kind=MERGE, expect=405)
    if method == "DELETE":
        found.send(method, collection, expect=405)
    home.get(f"{IN_WORKSPACE}/shapes")


def test_what_is_read_is_the_same_in_every_format(home: Api, master: Api) -> None:
    make_export(home, "shapes", schema("circles"))
    found, seen = cache(master), set()
    for path in objects(found, f"/shards/root/clusters/{home.cluster}", verb="watch"):
        check_read_only(found, path)
        seen.add(path.split("/")[-2])
    assert seen >= {"apiexports", "apiresourceschemas", "logicalclusters"}


def test_what_is_no_url_of_the_cache_says_so(master: Api) -> None:
    found = cache(master)
    for path in ("", "/", "/shards", "/shards/"):
        assert "a shard name is required" in found.get(path, expect=400).message
    found.get("/shards/A_B/clusters/*/apis", expect=400)
    found.get("/shards/*/clusters/*/api/v1/secrets", expect=404)
    found.get("/shards/*/clusters/*/metrics", expect=501)
    groups = {group["name"] for group in found.get(f"{EVERYWHERE}/apis").json["groups"]}
    assert {"apis.kcp.io", "cache.kcp.io", "core.kcp.io", "rbac.authorization.k8s.io", "tenancy.kcp.io"} <= groups


def test_all_others_are_refused_whatever_they_ask(admin: Api, home: Api) -> None:
    anonymous = Api(admin.shard, user="")
    anonymous.prefix = "/services/cache"
    for path in ("", "/shards", f"{EVERYWHERE}/apis", f"{EVERYWHERE}{EXPORTS}", f"{EVERYWHERE}/metrics"):
        for method in ("GET", "POST", "DELETE"):
            assert cache(admin).send(method, path).code == 403
            assert anonymous.send(method, path).code in {401, 403}
