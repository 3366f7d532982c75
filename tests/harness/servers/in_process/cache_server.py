"""A cache server in this process: its store, the rows delivered to it, and its API behind TLS.

async with caching(tmp_path) as cache:
    await cache.owned("consumer", "amber")
    await cache.arrived("amber", export("widgets", "consumer"))
    (await cache.get("/shards/*/clusters/*/apis/apis.kcp.io/v1alpha2/apiexports")).json
"""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry

from atoll.cacheserver.rows import Rows
from atoll.cacheserver.server import Serving, handler
from atoll.machinery.apiserver.authentication.certificates import Certificates
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, encode, splice
from atoll.machinery.meta.types import API_EXPORTS
from atoll.machinery.process.pki import make_ca, make_client, make_serving
from atoll.machinery.process.private_files import Pair
from atoll.machinery.process.tls import client_context, server_context
from atoll.machinery.storage.contract import ClusterRoute, Replica
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.server import Server
from harness.clients.raw_http import RawClient
from harness.data.stores import store_options

BASE = "/services/cache"
MASTER, NOBODY, TENANT, STRANGER, ANONYMOUS = "master", "nobody", "tenant", "stranger", ""


class Answer(NamedTuple):
    """One response."""

    code: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.json["items"]]


class People:
    """The authority of clients and the certificates that it signed; the stranger's certificate is another's."""

    def __init__(self) -> None:
        self.ca, servers, others = make_ca("clients"), make_ca("servers"), make_ca("others")
        self.serving, self._servers = make_serving(servers, ("127.0.0.1",)), servers
        self._pairs: dict[str, Pair | None] = {
            MASTER: make_client(self.ca, "shard-root", ("system:masters",)),
            NOBODY: make_client(self.ca, "nobody"),
            TENANT: make_client(self.ca, "tenant", ("system:kcp:admin", "system:kcp:external-logical-cluster-admin")),
            STRANGER: make_client(others, "shard-root", ("system:masters",)),
            ANONYMOUS: None,
        }

    def client(self, who: str) -> ssl.SSLContext:
        return client_context(self._servers.certificate, self._pairs[who])

    def server(self) -> ssl.SSLContext:
        return server_context(self.serving, self.ca.certificate)


class Cache:
    """One running cache server."""

    def __init__(self, store: LmdbStore, people: People) -> None:
        self.store, self.people, self.rows = store, people, Rows(store)
        #: The reason why the rows are incomplete, "" once they are complete.
        self.lacks = ""
        self.port = 0
        self._revision = 1_000

    async def owned(self, cluster: str, shard: str, generation: int = 1) -> None:
        """Make a shard's rows of a cluster valid from now on."""
        await self.store.submit([ClusterRoute(cluster, shard, generation)])

    async def arrived(self, shard: str, cluster: str, obj: Object, type: ResourceType = API_EXPORTS) -> int:
        """Deliver an object from a shard; return its revision there."""
        self._revision += 1
        key = ObjectKey(type, cluster, "", obj["metadata"]["name"])
        value, hole = encode(
            {
                **obj,
                "metadata": {
                    **obj["metadata"],
                    "annotations": {**obj["metadata"].get("annotations", {}), "kcp.io/cluster": cluster},
                },
            }
        )
        await self.store.submit([Replica(shard, key, splice(value, hole, self._revision), self._revision, 1)])
        await self.settle()
        return self._revision

    async def gone(self, shard: str, cluster: str, name: str, type: ResourceType = API_EXPORTS) -> None:
        """Deliver the deletion of an object."""
        self._revision += 1
        await self.store.submit([Replica(shard, ObjectKey(type, cluster, "", name), b"", self._revision, 1)])
        await self.settle()

    async def settle(self) -> None:
        """Bring every row in line with ownership."""
        for key in list(self.rows.all_keys()):
            while await self.rows.reconcile(key) is not None:
                pass

    async def ask(
        self, path: str, who: str = MASTER, method: str = "GET", headers: str = "", body: bytes = b""
    ) -> Answer:
        """One request on a connection of its own."""
        client = await RawClient.connect(self.port, self.people.client(who))
        try:
            answer = await client.ask(path, method, body, headers)
            return Answer(answer.status, answer.body)
        finally:
            client.close()

    async def get(self, path: str, who: str = MASTER, headers: str = "") -> Answer:
        """A GET below the service."""
        return await self.ask(BASE + path, who, headers=headers)

    @asynccontextmanager
    async def watch(self, path: str) -> AsyncIterator[Events]:
        """A watch that is read event by event."""
        client = await RawClient.connect(self.port, self.people.client(MASTER))
        await client.send(f"GET {BASE}{path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        status, _ = await client.head()
        assert status == 200, await client.rest()
        try:
            yield Events(client)
        finally:
            client.close()


class Events:
    """The events of a watch, in order."""

    def __init__(self, client: RawClient) -> None:
        self._client, self._lines = client, b""

    async def next(self) -> tuple[str, Any]:
        while b"\n" not in self._lines:
            chunk = await self._client.chunk()
            assert chunk, "the watch ended"
            self._lines += chunk
        line, _, self._lines = self._lines.partition(b"\n")
        event = json.loads(line)
        return event["type"], event["object"]

    def close(self) -> None:
        """Leave the watch."""
        self._client.close()


def export(name: str, **more: Any) -> Object:
    """An APIExport as its shard has it."""
    metadata = {"name": name, "uid": f"uid-of-{name}", "creationTimestamp": "2026-01-01T00:00:00Z", **more}
    return {"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": metadata, "spec": {}}


@asynccontextmanager
async def caching(directory: Path) -> AsyncIterator[Cache]:
    store = open_store(store_options(directory / "store"))
    cache = Cache(store, People())
    serving = Serving({"major": "1"}, CollectorRegistry(), lambda: cache.lacks or None, lambda: None)
    server = Server(handler(store, Certificates(cache.people.ca.certificate), serving), Limits(), cache.people.server())
    cache.port = await server.start("127.0.0.1", 0)
    try:
        yield cache
    finally:
        await server.drain(5.0)
        await store.close()
