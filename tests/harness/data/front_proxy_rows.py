"""Rows of a front proxy's store: Workspaces, LogicalClusters and Shards as the shards published them.

rows = ProxyRows(open_store(store_options(tmp_path)))
await rows.shards("root", "east")
await rows.workspace("root", "org", "1org", "east")
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from atoll.machinery.meta.names import ROOT, ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.storage.contract import ClusterRoute, Replica
from atoll.machinery.storage.lmdb_store import LmdbStore

WORKSPACES = ResourceType("tenancy.kcp.io", "workspaces", "t1")
SHARDS = ResourceType("core.kcp.io", "shards", "s1")


def base_url(shard: str) -> str:
    """The URL of a shard in these tests."""
    return f"https://{shard}.example:6444"


class ProxyRows:
    """Writes such rows; `root` is on shard `root` from the start."""

    def __init__(self, store: LmdbStore) -> None:
        self.store, self._revisions = store, count(100)
        #: The shard of each cluster.
        self.lies: dict[str, str] = {ROOT: ROOT}

    async def write(self, type: ResourceType, cluster: str, name: str, obj: Object | None) -> None:
        """Write one object of a cluster as its shard; None deletes it."""
        revision = next(self._revisions)
        metadata = {"name": name, "resourceVersion": f"{revision:016}", **((obj or {}).get("metadata") or {})}
        value = encode_json({**obj, "metadata": metadata}) if obj is not None else b""
        origin = self.lies[cluster]
        key = ObjectKey(type, cluster, "", name)
        await self.store.submit([ClusterRoute(cluster, origin), Replica(origin, key, value, revision, 1)])

    async def shards(self, *names: str) -> None:
        """Shards with their addresses."""
        for name in names:
            await self.write(SHARDS, ROOT, name, {"spec": {"baseURL": f"{base_url(name)}/"}})

    async def cluster(self, name: str, shard: str, annotations: dict[str, str] | None = None) -> None:
        """A logical cluster, on a shard."""
        self.lies[name] = shard
        await self.write(LOGICAL_CLUSTERS, name, "cluster", {"metadata": {"annotations": annotations or {}}})

    async def workspace(self, parent: str, name: str, cluster: str, shard: str, phase: str = "Ready") -> None:
        """A Workspace and its logical cluster."""
        await self.cluster(cluster, shard)
        await self.write(WORKSPACES, parent, name, {"spec": {"cluster": cluster}, "status": {"phase": phase}})

    async def chain(self, parent: str, steps: Iterable[tuple[str, str, str]]) -> None:
        """Workspaces below one another: name, cluster, shard."""
        for name, cluster, shard in steps:
            await self.workspace(parent, name, cluster, shard)
            parent = cluster
