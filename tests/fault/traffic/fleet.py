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
        self.resume()

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
