"""The API of a cache server: its URLs, objects, lists, watches and authorization."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from atoll.machinery.meta.types import CLUSTER_ROLES, LOGICAL_CLUSTERS
from atoll.machinery.meta.user import User
from harness.servers.in_process.cache_server import ANONYMOUS, BASE, MASTER, NOBODY, STRANGER, TENANT, caching, export
from harness.tiers import only

EXPORTS = "apis/apis.kcp.io/v1alpha2/apiexports"
EVERYWHERE = f"/shards/*/clusters/*/{EXPORTS}"


async def test_an_object_keeps_its_content_and_uid_and_gets_a_revision_of_the_cache(tmp_path: Path) -> None:
    async with caching(tmp_path) as cache:
        await cache.owned("prov", "amber")
        spoofed = {"annotations": {"kcp.io/shard": "blue", "note": "kept"}, "labels": {"a": "b"}}
        revision = await cache.arrived("amber", "prov", export("widgets", **spoofed))
        found = (await cache.get(f"/shards/amber/clusters/prov/{EXPORTS}/widgets")).json
        metadata = found["metadata"]
        assert metadata["annotations"] == {
            "kcp.io/cluster": "prov",
            "kcp.io/shard": "amber",
            "note": "kept",
            "cache.kcp.io/original-resource-version": str(revision),
            "cache.kcp.io/original-resource-UID": "uid-of-widgets",
        }
        assert (found["kind"], found["spec"], metadata["labels"]) == ("APIExport", {}, {"a": "b"})
        assert metadata["creationTimestamp"] == "2026-01-01T00:00:00Z"
        assert metadata["uid"] == "uid-of-widgets"
        listed = (await cache.get(EVERYWHERE)).json
        assert metadata["resourceVersion"] != str(revision)
        assert int(metadata["resourceVersion"]) <= int(listed["metadata"]["resourceVersion"])


async def test_a_change_keeps_the_uid_and_another_object_of_the_name_gets_another(tmp_path: Path) -> None:
    async with caching(tmp_path) as cache:
        await cache.owned("prov", "amber")
        await cache.arrived("amber", "prov", export("widgets"))

        async def metadata() -> dict[str, str]:
            found: dict[str, str] = (await cache.get(f"/shards/*/clusters/prov/{EXPORTS}/widgets")).json["metadata"]
            return found

        first = await metadata()
        await cache.arrived("amber", "prov", export("widgets", labels={"changed": "yes"}))
        changed = await metadata()
        assert changed["uid"] == first["uid"] == "uid-of-widgets"
        assert int(changed["resourceVersion"]) > int(first["resourceVersion"])
        path = f"/shards/amber/clusters/prov/{EXPORTS}?watch=1&resourceVersion={changed['resourceVersion']}"
        async with cache.watch(path) as events:
            another = {**export("widgets"), "metadata": {"name": "widgets", "uid": "another"}}
            await cache.arrived("amber", "prov", another)
            seen = [(kind, obj["metadata"]["uid"]) for kind, obj in [await events.next() for _ in range(2)]]
        assert seen == [("DELETED", "uid-of-widgets"), ("ADDED", "another")]
        assert (await metadata())["uid"] == "another"


async def test_looking_again_changes_nothing(tmp_path: Path) -> None:
    async with caching(tmp_path) as cache:
        await cache.owned("prov", "amber")
        await cache.arrived("amber", "prov", export("widgets"))
        before = (await cache.get(EVERYWHERE)).body
        await cache.settle()
        assert (await cache.get(EVERYWHERE)).body == before


async def test_urls_choose_shards_and_clusters(tmp_path: Path) -> None:
    async with caching(tmp_path) as cache:
        for cluster, shard in (("c1", "amber"), ("c2", "amber"), ("c3", "blue")):
            await cache.owned(cluster, shard)
            await cache.arrived(shard, cluster, export(f"of-{cluster}"))

        async def names(shard: str, cluster: str) -> list[str]:
            answer = await cache.get(f"/shards/{shard}/clusters/{cluster}/{EXPORTS}")
            return answer.names

        assert await names("*", "*") == ["of-c1", "of-c2", "of-c3"]
        assert await names("amber", "*") == ["of-c1", "of-c2"]
        assert await names("blue", "*") == ["of-c3"]
        assert await names("*", "c3") == await names("blue", "c3") == ["of-c3"]
        assert await names("amber", "c3") == await names("green", "*") == []
        assert (await cache.get(f"/shards/amber/clusters/c3/{EXPORTS}/of-c3")).code == 404
        assert (await cache.get(f"/shards/*/clusters/c3/{EXPORTS}/of-c3")).code == 200


async def test_pages_of_one_shard_hold_what_is_its_own(tmp_path: Path) -> None:
    async with caching(tmp_path) as cache:
        for number in range(9):
            shard = "amber" if number % 3 else "blue"
            await cache.owned(f"c{number}", shard)
            await cache.arrived(shard, f"c{number}", export(f"n{number}"))
        for shard, expected in (("*", range(9)), ("amber", [1, 2, 4, 5, 7, 8]), ("blue", [0, 3, 6])):
            found, token = [], ""
            for _ in range(20):
                page = await cache.get(f"/shards/{shard}/clusters/*/{EXPORTS}?limit=2&continue={token}")
                assert len(page.names) <= 2
                found += page.names
                if not (token := page.json["metadata"].get("continue", "")):
                    break
            assert found == [f"n{number}" for number in expected]


@pytest.mark.parametrize("shard", ["*", "amber"])
async def test_a_watch_goes_on_from_a_list(tmp_path: Path, shard: str) -> None:
    async with caching(tmp_path) as cache:
        await cache.owned("c1", "amber")
        await cache.owned("c2", "blue")
        await cache.arrived("amber", "c1", export("first"))
        path = f"/shards/{shard}/clusters/*/{EXPORTS}"
        listed = (await cache.get(path)).json["metadata"]["resourceVersion"]
        async with cache.watch(f"{path}?watch=1&resourceVersion={listed}") as events:
            await cache.arrived("blue", "c2", export("other"))
            await cache.arrived("amber", "c1", export("second"))
            await cache.arrived("amber", "c1", export("first", labels={"changed": "yes"}))
            await cache.gone("amber", "c1", "second")
            seen: list[tuple[str, str]] = []
            while not seen or seen[-1] != ("DELETED", "second"):
                type, obj = await events.next()
                seen.append((type, obj["metadata"]["name"]))
        others = [("ADDED", "other")] if shard == "*" else []
        assert seen == [*others, ("ADDED", "second"), ("MODIFIED", "first"), ("DELETED", "second")]


async def test_a_cluster_that_moves_leaves_one_shard_and_comes_to_the_other(tmp_path: Path) -> None:
    async with caching(tmp_path) as cache:
        await cache.owned("c1", "amber")
        await cache.arrived("amber", "c1", export("widgets"))
        await cache.arrived("blue", "c1", export("widgets"))
        watching = [f"/shards/{shard}/clusters/*/{EXPORTS}?watch=1" for shard in ("amber", "blue", "*")]
        async with cache.watch(watching[0]) as amber, cache.watch(watching[1]) as blue, cache.watch(watching[2]) as all:
            assert (await amber.next())[0] == (await all.next())[0] == "ADDED"
            await cache.owned("c1", "blue", 2)
            await cache.settle()
            kind, obj = await amber.next()
            assert (kind, obj["metadata"]["annotations"]["kcp.io/shard"]) == ("DELETED", "amber")
            kind, obj = await blue.next()
            assert (kind, obj["metadata"]["annotations"]["kcp.io/shard"]) == ("ADDED", "blue")
            kind, obj = await all.next()
            assert (kind, obj["metadata"]["annotations"]["kcp.io/shard"]) == ("MODIFIED", "blue")


async def test_rows_of_a_shard_that_does_not_own_the_cluster_do_not_count(tmp_path: Path) -> None:
    async with caching(tmp_path) as cache:
        await cache.owned("c1", "amber")
        await cache.arrived("blue", "c1", export("injected"))
        await cache.arrived("blue", "c2", export("nobody-owns-it"))
        assert (await cache.get(EVERYWHERE)).names == []


async def test_system_clusters_are_never_shown_whoever_sends_them(tmp_path: Path) -> None:
    async with caching(tmp_path) as cache:
        await cache.owned("system:admin", "root")
        await cache.arrived("root", "system:admin", {"metadata": {"name": "evil"}}, CLUSTER_ROLES)
        roles = "apis/rbac.authorization.k8s.io/v1/clusterroles"
        assert (await cache.get(f"/shards/*/clusters/*/{roles}")).names == []
        assert (await cache.get(f"/shards/*/clusters/system:admin/{roles}/evil")).code == 404


async def test_an_inactive_workspace_is_shown_like_any_other(tmp_path: Path) -> None:
    async with caching(tmp_path) as cache:
        await cache.owned("c1", "amber")
        inactive = {"metadata": {"name": "cluster", "annotations": {"core.kcp.io/inactive": "true"}}}
        await cache.arrived("amber", "c1", inactive, LOGICAL_CLUSTERS)
        await cache.arrived("amber", "c1", export("widgets"))
        assert (await cache.get(f"/shards/*/clusters/c1/{EXPORTS}")).names == ["widgets"]


@pytest.mark.parametrize(
    ("path", "code", "text"),
    [
        ("", 400, "a shard name is required"),
        ("/shards", 400, "a shard name is required"),
        ("/shards/", 400, "a shard name is required"),
        (f"/clusters/*/{EXPORTS}", 400, "a shard name is required"),
        (f"/shards/A_B/clusters/*/{EXPORTS}", 400, 'invalid shard: "A_B" does not match the regex'),
        (f"/shards/amber/clusters/-/{EXPORTS}", 400, 'invalid cluster: "-" does not match the regex'),
        (f"/shards/amber/clusters/root:org/{EXPORTS}", 404, "could not find the requested resource"),
        ("/shards/amber/clusters/*/metrics", 501, "metrics are served"),
        ("/shards/amber/clusters/*/readyz", 404, "could not find the requested resource"),
        ("/shards/amber/clusters/*/api/v1/secrets", 404, "could not find the requested resource"),
        (f"/shards/*/clusters/*/{EXPORTS}/widgets", 405, "not supported"),
        (f"/shards/*/clusters/*/{EXPORTS}?watch=1&resourceVersion=1", 200, ""),
    ],
)
async def test_what_is_no_url_of_the_cache_says_so(tmp_path: Path, path: str, code: int, text: str) -> None:
    async with caching(tmp_path) as cache:
        if code == 200:
            async with cache.watch(path):
                return
        answer = await cache.get(path)
        assert (answer.code, text in answer.json["message"]) == (code, True), answer.body


_MERGE = "Content-Type: application/merge-patch+json\r\n"
_CHANGE: dict[str, Any] = {
    "metadata": {"labels": {"tampered": "yes"}, "finalizers": ["a.example.com/b"]},
    "spec": {"resources": []},
}


@pytest.mark.parametrize("shard", ["amber", "*"])
@pytest.mark.parametrize("change", ["update", "patch", "delete", "delete with finalizer", "deletecollection"])
async def test_what_a_master_changes_comes_back_as_the_source_has_it(tmp_path: Path, change: str, shard: str) -> None:
    async with caching(tmp_path) as cache:
        await cache.owned("c1", "amber")
        finalizers = ["a.example.com/source"] if change == "delete with finalizer" else []
        await cache.arrived("amber", "c1", export("widgets", finalizers=finalizers))
        collection = f"/shards/{shard}/clusters/c1/{EXPORTS}"
        before = (await cache.get(f"{collection}/widgets")).json
        if change == "update":
            body = {**before, "metadata": {**before["metadata"], **_CHANGE["metadata"]}}
            done = await cache.ask(BASE + f"{collection}/widgets", MASTER, "PUT", body=json.dumps(body).encode())
        elif change == "patch":
            merge = json.dumps(_CHANGE).encode()
            done = await cache.ask(BASE + f"{collection}/widgets", MASTER, "PATCH", _MERGE, merge)
        elif change == "deletecollection":
            done = await cache.ask(BASE + collection, MASTER, "DELETE")
        else:
            done = await cache.ask(BASE + f"{collection}/widgets", MASTER, "DELETE")
        assert done.code == 200, done.body
        changed = await cache.get(f"{collection}/widgets")
        assert changed.json != before
        await cache.settle()
        after = (await cache.get(f"{collection}/widgets")).json
        assert int(after["metadata"].pop("resourceVersion")) > int(before["metadata"].pop("resourceVersion"))
        assert after == before


@pytest.mark.parametrize("accept", ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"])
async def test_what_a_master_puts_back_changes_nothing(tmp_path: Path, accept: str) -> None:
    async with caching(tmp_path) as cache:
        await cache.owned("c1", "amber")
        await cache.arrived("amber", "c1", export("widgets"))
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "widgets"}}
        await cache.arrived("amber", "c1", {**role, "rules": []}, CLUSTER_ROLES)
        for plural in (EXPORTS, "apis/rbac.authorization.k8s.io/v1/clusterroles"):
            path = f"{BASE}/shards/amber/clusters/c1/{plural}/widgets"
            before, read = await cache.ask(path), await cache.ask(path, headers=f"Accept: {accept}\r\n")
            if read.code == 406:
                continue
            kind = accept if read.body != before.body else "application/json"
            done = await cache.ask(path, MASTER, "PUT", f"Content-Type: {kind}\r\n", read.body)
            assert (done.code, done.json) == (200, before.json), done.body
            await cache.settle()
            assert (await cache.ask(path)).body == before.body


async def test_a_change_of_an_object_without_a_source_any_more_is_removed(tmp_path: Path) -> None:
    async with caching(tmp_path) as cache:
        await cache.owned("c1", "amber")
        await cache.arrived("amber", "c1", export("widgets"))
        path = f"{BASE}/shards/amber/clusters/c1/{EXPORTS}/widgets"
        held = json.dumps({"metadata": {"finalizers": ["a.example.com/b"]}}).encode()
        assert (await cache.ask(path, MASTER, "PATCH", _MERGE, held)).code == 200
        await cache.gone("amber", "c1", "widgets")
        assert (await cache.get(EVERYWHERE)).names == []


@pytest.mark.parametrize("where", ["/shards/amber/clusters/c1", "/shards/*/clusters/c1", "/shards/*/clusters/*"])
async def test_nothing_is_created_through_it(tmp_path: Path, where: str) -> None:
    async with caching(tmp_path) as cache:
        await cache.owned("c1", "amber")
        await cache.arrived("amber", "c1", export("widgets"))
        path, body = f"{BASE}{where}/{EXPORTS}", json.dumps(export("other")).encode()
        assert (await cache.ask(path, MASTER, "POST", "Content-Type: application/json\r\n", body)).code == 405
        apply = "Content-Type: application/apply-patch+yaml\r\n"
        answer = await cache.ask(f"{path}/other?fieldManager=a", MASTER, "PATCH", apply, body)
        assert answer.code in {404, 405}, answer.body
        assert (await cache.ask(f"{path}/other", MASTER, "PUT", body=body)).code in {404, 405}
        assert (await cache.get(EVERYWHERE)).names == ["widgets"]


async def test_a_write_at_one_shard_does_not_reach_the_objects_of_another(tmp_path: Path) -> None:
    async with caching(tmp_path) as cache:
        await cache.owned("c1", "amber")
        await cache.arrived("amber", "c1", export("widgets"))
        path = f"{BASE}/shards/blue/clusters/c1/{EXPORTS}"
        assert (await cache.ask(f"{path}/widgets", MASTER, "DELETE")).code == 404
        assert (await cache.ask(f"{path}/widgets", MASTER, "PATCH", _MERGE, b"{}")).code == 404
        assert (await cache.ask(path, MASTER, "DELETE")).code == 200
        assert (await cache.get(EVERYWHERE)).names == ["widgets"]


async def test_it_tells_what_it_serves(tmp_path: Path) -> None:
    async with caching(tmp_path) as cache:
        groups = (await cache.get("/shards/*/clusters/*/apis")).json["groups"]
        assert {group["name"] for group in groups} == {
            "admissionregistration.k8s.io",
            "apis.kcp.io",
            "cache.kcp.io",
            "core.kcp.io",
            "rbac.authorization.k8s.io",
            "tenancy.kcp.io",
            "topology.kcp.io",
        }
        resources = (await cache.get("/shards/amber/clusters/c1/apis/tenancy.kcp.io/v1alpha1")).json["resources"]
        assert {each["name"]: each["verbs"] for each in resources} == {
            name: ["delete", "deletecollection", "get", "list", "patch", "update", "watch"]
            for name in ("workspaceauthenticationconfigurations", "workspaces", "workspacetypes")
        }
        table = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io\r\n"
        await cache.owned("c1", "amber")
        await cache.arrived("amber", "c1", export("widgets"))
        assert (await cache.get(EVERYWHERE, headers=table)).json["rows"][0]["cells"][0] == "widgets"


#: Every form of URL, valid and invalid.
_ROUTES = (
    "/",
    "/api",
    "/apis",
    "/version",
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/openid/v1/jwks",
    "/services",
    "/services/",
    "/services/other",
    BASE,
    f"{BASE}/",
    f"{BASE}/shards",
    f"{BASE}/shards/",
    f"{BASE}/shards/*",
    f"{BASE}/shards/A_B/clusters/*/api",
    f"{BASE}/shards/*/clusters/*/apis",
    f"{BASE}/shards/*/clusters/*/api",
    f"{BASE}/shards/*/clusters/*/openapi/v3",
    f"{BASE}/shards/*/clusters/*/metrics",
    f"{BASE}/shards/*/clusters/c1",
    f"{BASE}{EVERYWHERE}",
    f"{BASE}{EVERYWHERE}?watch=1",
    f"{BASE}/shards/amber/clusters/*/{EXPORTS}",
    f"{BASE}/shards/amber/clusters/c1/{EXPORTS}",
    f"{BASE}/shards/amber/clusters/c1/{EXPORTS}/widgets",
    f"{BASE}/shards/*/clusters/*/apis/rbac.authorization.k8s.io/v1/clusterroles",
    f"{BASE}/shards/*/clusters/*/apis/core.kcp.io/v1alpha1/logicalclusters",
    f"/clusters/c1/{EXPORTS}",
    f"/clusters/*/{EXPORTS}",
    "/clusters/root/api/v1/secrets",
    "/clusters/c1/metrics",
    f"/{EXPORTS}",
)
_OPEN = ("/healthz", "/livez", "/readyz")


@pytest.mark.parametrize("who", only({TENANT}, [ANONYMOUS, NOBODY, TENANT]))
async def test_a_crawl_by_who_is_no_master_finds_health_and_nothing_else(tmp_path: Path, who: str) -> None:
    """Advisory GHSA-3j3q-wp9x-585p: kcp served its cache before authentication."""
    async with caching(tmp_path) as cache:
        await cache.owned("c1", "amber")
        await cache.arrived("amber", "c1", export("widgets"))
        for path in _ROUTES:
            for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
                answer = await cache.ask(path, who, method)
                assert answer.code in {401, 403}, (path, method, answer)
                assert b"uid-of-widgets" not in answer.body
            impersonating = "Impersonate-User: shard-root\r\nImpersonate-Group: system:masters\r\n"
            assert (await cache.ask(path, who, headers=impersonating)).code in {401, 403}
            speaking = "X-Remote-User: shard-root\r\nX-Remote-Group: system:masters\r\n"
            assert (await cache.ask(path, who, headers=speaking)).code in {401, 403}
            assert (await cache.ask(path, who, headers="Authorization: Bearer whatever\r\n")).code in {401, 403}
        for path in _OPEN:
            assert (await cache.ask(path, who)).code == 200
        assert (await cache.get(EVERYWHERE)).names == ["widgets"]


async def test_the_crawl_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the guard (only masters read) the crawl fails."""
    monkeypatch.setattr(User, "is_master", property(lambda user: True))
    with pytest.raises(AssertionError):
        await test_a_crawl_by_who_is_no_master_finds_health_and_nothing_else(tmp_path, NOBODY)


async def test_a_certificate_of_another_authority_does_not_get_in(tmp_path: Path) -> None:
    async with caching(tmp_path) as cache:
        with pytest.raises((OSError, AssertionError, EOFError)):
            await cache.get(EVERYWHERE, STRANGER)


async def test_metrics_are_for_masters_and_readiness_waits_for_the_rows(tmp_path: Path) -> None:
    async with caching(tmp_path) as cache:
        assert b"apiserver_request_total" in (await cache.ask("/metrics")).body
        assert (await cache.ask("/readyz", ANONYMOUS)).code == 200
        cache.lacks = "the first reading is not complete"
        assert (await cache.ask("/readyz", ANONYMOUS)).code == 500
        assert (await cache.ask("/livez", ANONYMOUS)).code == 200
        # With half of the rows, an informer would take the others for deleted.
        assert (await cache.get(EVERYWHERE)).code == 503
        assert (await cache.get("/shards/*/clusters/*/apis")).code == 200
