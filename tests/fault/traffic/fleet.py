"""The shard under the traffic: up or down, the clusters written to, and the clients that reach it now.

Writers and watchers hold the fleet, not a connection; after a restart they go on with new clients, since the
administrator's token is another one at each start.
"""

from __future__ import annotations

import asyncio

from fault.traffic.shardapi import ShardApi
from harness.servers.shard_process import ShardProcess


class Fleet:
    """One shard and how to reach it. `up` is set while it serves."""

    api: ShardApi

    def __init__(self, shard: ShardProcess) -> None:
        self.shard = shard
        self.clusters: tuple[str, ...] = ()
        self.up = asyncio.Event()
        #: Set while writers write; cleared alone, it lets watchers come to the end.
        self.writable = asyncio.Event()
        #: Writers with a request under way.
        self.writing = 0

    async def open(self, workspaces: int = 2) -> None:
        """Connect to the running shard and make the workspaces that traffic goes to."""
        self.api = ShardApi(self.shard)
        made = [await self.api.workspace(f"traffic-{number}") for number in range(workspaces)]
        self.clusters = tuple(made)
        for cluster in made:
            await self._limit(cluster)
        self.resume()

    async def _limit(self, cluster: str) -> None:
        """Let quotas and the limit of all objects count the traffic, which stays far below them: fsck counts too."""
        quotas = f"/clusters/{cluster}/api/v1/namespaces/default/resourcequotas"
        for name, hard in (("fine", b'"count/configmaps":"100000"'), ("coarse", b'"configmaps":"1M","secrets":"1M"')):
            body = b'{"metadata":{"name":"%b"},"spec":{"hard":{%b}}}' % (name.encode(), hard)
            answer = await self.api.ask("POST", quotas, body, "application/json")
            assert answer.status == 201, answer.body
        path = f"/clusters/{cluster}/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
        limit = b'{"metadata":{"annotations":{"core.kcp.io/max-total-objects":"100000"}}}'
        answer = await self.api.ask("PATCH", path, limit, "application/merge-patch+json")
        assert answer.status == 200, answer.body

    def resume(self) -> None:
        """Let traffic go on."""
        self.up.set()
        self.writable.set()

    def pause(self) -> None:
        """Stop new requests: the shard is down, or about to be checked."""
        self.up.clear()
        self.writable.clear()

    async def kill(self) -> None:
        """SIGKILL at once, during requests."""
        self.pause()
        await asyncio.to_thread(self.shard.kill)
        await self.api.http.close()

    async def restart(self) -> None:
        """Start again on the same directory, and let traffic go on."""
        await asyncio.to_thread(self.shard.start)
        self.api = ShardApi(self.shard)
        self.resume()

    async def close(self) -> None:
        await self.api.http.close()
