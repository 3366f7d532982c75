"""A cache server beside a site: what three shards publish, each object under the shard that has it."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest

from atoll.machinery.stream.credential_file import read_access
from atoll.standalone.site.credentials import CACHE_USER
from harness.clients.api import MERGE, Api
from harness.clients.exports import EXPORTS as IN_WORKSPACE
from harness.clients.exports import cache_beacons, make_export, schema
from harness.clients.site_workspaces import on, ready, workspace
from harness.data.kind_samples import CONTENT
from harness.servers.cache_server_process import CacheProcess
from harness.servers.in_process.cache_server import ANONYMOUS, BASE, MASTER, NOBODY
from harness.servers.site import Site

EXPORTS = "/shards/*/clusters/*/apis/apis.kcp.io/v1alpha2/apiexports"
SHARDS = "/shards/root/clusters/root/apis/core.kcp.io/v1alpha1/shards"
_MERGE = "Content-Type: application/merge-patch+json\r\n"
CLUSTERS = "apis/core.kcp.io/v1alpha1/logicalclusters"


async def test_objects_of_every_shard_are_there_and_followed(site: Site, admin: Api, tmp_path: Path) -> None:
    access = read_access(site.nats.url, str(site.layout.credential(CACHE_USER)))
    tag = f"shapes-{uuid.uuid4().hex[:6]}"

    def provide(shard: str) -> tuple[Api, str]:
        """A workspace on a shard with an export in it."""
        made = ready(admin, workspace(admin, selector=on(shard)))
        api = site.shards[shard].api(made["spec"]["cluster"])
        make_export(api, tag, schema("circles"))
        return api, str(made["spec"]["cluster"])

    places = {shard: await asyncio.to_thread(provide, shard) for shard in site.shards}
    with CacheProcess(tmp_path / "cache", access) as cache:
        await cache.ready()
        assert sorted((await cache.get(SHARDS)).names) == sorted(site.shards)

        async def found() -> dict[str, str]:
            items = (await cache.get(EXPORTS)).json["items"]
            mine = (item["metadata"]["annotations"] for item in items if item["metadata"]["name"] == tag)
            return {each["kcp.io/shard"]: each["kcp.io/cluster"] for each in mine}

        # Readiness means that all rows were read once, not that they are current.
        await cache.until(BASE + EXPORTS, lambda answer: answer.names.count(tag) == len(places))
        assert await found() == {shard: cluster for shard, (_, cluster) in places.items()}
        for shard, (api, cluster) in places.items():
            mine = f"/shards/{shard}/clusters/{cluster}/{CLUSTERS}/cluster"
            await cache.until(BASE + mine, lambda answer: answer.code == 200)
            for other in set(places) - {shard}:
                assert (await cache.get(mine.replace(f"/{shard}/", f"/{other}/", 1))).code == 404
            revision = (await cache.get(EXPORTS)).json["metadata"]["resourceVersion"]
            events = await cache.watching(f"{EXPORTS}?watch=1&resourceVersion={revision}")
            await asyncio.to_thread(api.delete, f"{IN_WORKSPACE}/{tag}")
            gone = ""
            while gone != cluster:
                type, obj = await events.next()
                gone = obj["metadata"]["annotations"]["kcp.io/cluster"] if type == "DELETED" else ""
            events.close()
        assert await found() == {}
        listed = (await cache.get("/shards/*/clusters/*/apis/rbac.authorization.k8s.io/v1/clusterroles")).json["items"]
        assert listed
        assert not [item for item in listed if item["metadata"]["annotations"]["kcp.io/cluster"].startswith("system:")]


@pytest.mark.long
async def test_what_clustercachedresources_select_is_there_under_its_uid(
    site: Site, admin: Api, tmp_path: Path
) -> None:
    access = read_access(site.nats.url, str(site.layout.credential(CACHE_USER)))
    group = f"g{uuid.uuid4().hex[:6]}.example.com"
    path = f"/apis/{group}/v1/beacons"
    shard = next(name for name in site.shards if name != "root")

    def provide() -> tuple[Api, str]:
        """A workspace on another shard than root's, whose resource is cached; its identity."""
        made = ready(admin, workspace(admin, selector=on(shard)))
        api = site.shards[shard].api(made["spec"]["cluster"])
        identity = cache_beacons(api, group, labelSelector={"matchLabels": {"shown": "yes"}})
        for name, labels in (("north", {"shown": "yes"}), ("south", {})):
            api.post(
                path, {"apiVersion": f"{group}/v1", "kind": "Beacon", "metadata": {"name": name, "labels": labels}}
            )
        return api, identity

    provider, identity = await asyncio.to_thread(provide)
    source = (await asyncio.to_thread(provider.get, f"{path}/north")).json
    by_identity = f"/shards/*/clusters/*{path}:{identity}"
    inside = f"/shards/{shard}/clusters/{provider.cluster}{path}"
    with CacheProcess(tmp_path / "cache", access, **shard_access(site, tmp_path)) as cache:
        await cache.ready()
        await cache.until(BASE + by_identity, lambda answer: answer.code == 200)
        for where in (by_identity, inside, f"{inside}:{identity}"):
            listed = (await cache.get(where)).json
            assert [item["metadata"]["name"] for item in listed["items"]] == ["north"]
        metadata = (await cache.get(f"{inside}/north")).json["metadata"]
        assert metadata["uid"] == source["metadata"]["uid"]
        assert metadata["annotations"]["cache.kcp.io/original-resource-UID"] == source["metadata"]["uid"]
        assert metadata["annotations"]["kcp.io/shard"] == shard
        events = await cache.watching(f"{by_identity}?watch=1&resourceVersion={listed['metadata']['resourceVersion']}")
        await asyncio.to_thread(provider.patch, f"{path}/south", {"metadata": {"labels": {"shown": "yes"}}}, MERGE)
        type, obj = await events.next()
        assert (type, obj["metadata"]["name"]) == ("ADDED", "south")
        events.close()
        for nothing in (f"{inside}/east", f"/shards/root/clusters/*{path}:{identity}", f"/shards/*/clusters/*{path}"):
            assert (await cache.get(nothing)).code == 404
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            name = "" if method == "POST" else "/north"
            answer = await cache.ask(f"{BASE}{inside}{name}", MASTER, method, _MERGE, b"{}")
            assert answer.code == 405, answer.body
        for who in (NOBODY, ANONYMOUS):
            assert (await cache.ask(BASE + inside, who)).code in {401, 403}
        impersonating = "Impersonate-User: nobody\r\n"
        assert (await cache.ask(BASE + inside, MASTER, headers=impersonating)).code == 403
    with CacheProcess(tmp_path / "without", access) as cache:
        await cache.ready()
        await cache.until(BASE + by_identity, lambda answer: answer.code == 503)


@pytest.mark.long
async def test_configurations_of_admission_are_there_while_their_workspace_exports(
    site: Site, admin: Api, tmp_path: Path
) -> None:
    access = read_access(site.nats.url, str(site.layout.credential(CACHE_USER)))
    shard, group = next(name for name in site.shards if name != "root"), "admissionregistration.k8s.io"
    names = {"validatingadmissionpolicybindings": "Validating", "mutatingadmissionpolicybindings": "Mutating"}

    def provide() -> Api:
        made = ready(admin, workspace(admin, selector=on(shard)))
        api = site.shards[shard].api(made["spec"]["cluster"])
        for plural, kind in names.items():
            spec = CONTENT[group, plural]
            assert not callable(spec)
            head = {"apiVersion": f"{group}/v1", "kind": f"{kind}AdmissionPolicyBinding", "metadata": {"name": "mine"}}
            api.post(f"/apis/{group}/v1/{plural}", {**head, **spec})
        return api

    provider = await asyncio.to_thread(provide)
    rows = [f"/shards/{shard}/clusters/{provider.cluster}/apis/{group}/v1/{plural}/mine" for plural in names]
    with CacheProcess(tmp_path / "cache", access) as cache:
        await cache.ready()
        for tag in ("circles", "squares"):
            await asyncio.to_thread(make_export, provider, tag, schema(tag))
            for row in rows:
                await cache.until(BASE + row, lambda answer: answer.code == 200)
            await asyncio.to_thread(provider.delete, f"{IN_WORKSPACE}/{tag}")
            for row in rows:
                await cache.until(BASE + row, lambda answer: answer.code == 404)


async def test_a_shard_of_a_site_has_the_cache_of_its_own_name_alone(site: Site, admin: Api) -> None:
    def ask(user: str, path: str) -> int:
        api = site.root.api("", user)
        api.prefix = "/services/cache"
        return api.get(path, expect=0).code

    exports = "/clusters/*/apis/apis.kcp.io/v1alpha2/apiexports"
    assert await asyncio.to_thread(ask, "shard-admin", f"/shards/root{exports}") == 200
    for other in ("*", next(name for name in site.shards if name != "root")):
        assert await asyncio.to_thread(ask, "shard-admin", f"/shards/{other}{exports}") == 404
    assert await asyncio.to_thread(ask, "kcp-admin", f"/shards/root{exports}") == 403


def shard_access(site: Site, directory: Path) -> dict[str, str]:
    """The flags by which a cache server reaches the shards."""
    pair = site.certificate("cache", "system:masters")
    files = {
        "shard-client-cert-file": pair.certificate,
        "shard-client-key-file": pair.key,
        "shard-virtual-workspace-ca-file": site.authority,
    }
    for name, data in files.items():
        (directory / name).write_bytes(data)
    return {name: str(directory / name) for name in files}
