"""A cache server beside a site: what three shards publish, each object under the shard that has it."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

from atoll.machinery.stream.credential_file import read_access
from atoll.standalone.site.credentials import CACHE_USER
from harness.clients.api import Api
from harness.clients.exports import EXPORTS as IN_WORKSPACE
from harness.clients.exports import make_export, schema
from harness.clients.site_workspaces import on, ready, workspace
from harness.servers.cache_server_process import CacheProcess
from harness.servers.in_process.cache_server import BASE
from harness.servers.site import Site

EXPORTS = "/shards/*/clusters/*/apis/apis.kcp.io/v1alpha2/apiexports"
SHARDS = "/shards/root/clusters/root/apis/core.kcp.io/v1alpha1/shards"
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
