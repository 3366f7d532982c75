"""Another shard as calls see it: a real HTTPS server that answers as a test says, and Peers that reach it.

async with far_shard() as far, shard_inside(tmp_path, far.peers) as shard:
    await far.announce(shard)                     # its Shard object, as root has it
    far.answers["POST"] = lambda received: (507, {...})
    ...
    assert [each.method for each in far.requests] == ["POST"]
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import msgspec

from atoll.machinery.client.target import Target
from atoll.machinery.kcp.sharding.shards import Load, heartbeat_status
from atoll.machinery.meta.names import ROOT
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import ApiError, NotFound
from atoll.machinery.process.pki import make_ca, make_client, make_serving
from atoll.machinery.process.tls import client_context, server_context
from atoll.machinery.storage.contract import Replica
from atoll.machinery.wire.exchange import Exchange
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.server import Server
from atoll.replication.peers import EXTERNAL_LOGICAL_CLUSTER_ADMIN, LOGICAL_CLUSTER_ADMIN, Peers
from harness.clients.api import TIMEOUT_S
from harness.servers.in_process.shard import InsideShard

_SERVING, _CLIENTS = make_ca("far-serving"), make_ca("far-clients")
_JSON = ("content-type", "application/json")


class ReceivedRequest(NamedTuple):
    """One request. `cluster` is its logical cluster, `path` the rest."""

    method: str
    cluster: str
    path: str
    body: Any


#: Code and object to answer with; None: the connection breaks without an answer.
Answer = tuple[int, Object] | None


class FarShard:
    """Shard `far`. A request without a prepared answer is not found."""

    name = "far"

    def __init__(self) -> None:
        self.requests: list[ReceivedRequest] = []
        self.answers: dict[str, Callable[[ReceivedRequest], Answer]] = {}
        self.url = ""
        self._server = self._new_server()
        pairs = {name: make_client(_CLIENTS, name) for name in (LOGICAL_CLUSTER_ADMIN, EXTERNAL_LOGICAL_CLUSTER_ADMIN)}
        targets = {
            name: Target("192.0.2.1", 1, "", client_context(_SERVING.certificate, pair)) for name, pair in pairs.items()
        }
        self.peers = Peers(self._find, targets)

    def _new_server(self) -> Server:
        context = server_context(make_serving(_SERVING, ["127.0.0.1"]), _CLIENTS.certificate)
        return Server(self._answer, Limits(), context)

    def _find(self, name: str) -> Object | None:
        return {"spec": {"baseURL": self.url}} if name == self.name else None

    async def start(self) -> None:
        port = int(self.url.rpartition(":")[2]) if self.url else 0
        self.url = f"https://127.0.0.1:{await self._server.start('127.0.0.1', port)}"

    async def stop(self) -> None:
        """Stop listening; `start` opens the same address again."""
        await self._server.drain(1.0)
        self._server = self._new_server()

    def methods(self) -> list[str]:
        return [each.method for each in self.requests]

    async def announce(self, shard: InsideShard, **labels: str) -> None:
        """Write its Shard object, and wait until the controllers have seen it."""
        type = shard.app.identities.shard_objects
        body = {
            "apiVersion": "core.kcp.io/v1alpha1",
            "kind": "Shard",
            "metadata": {"name": self.name, "labels": {"name": self.name, **labels}},
            "spec": {"baseURL": self.url},
        }
        beating = {**body, "status": heartbeat_status(body, Load(heartbeat_s=time.time()))}
        await shard.loopback.create(shard.target(type, ROOT, "", self.name), beating, whole=True)
        await shard.until_idle()

    def _answer(self, exchange: Exchange) -> None:
        request = exchange.request
        target = request.target.decode().partition("?")[0]
        _, _, cluster, path = target.split("/", 3)
        received = ReceivedRequest(request.method, cluster, path, json.loads(request.body) if request.body else None)
        self.requests.append(received)
        given = self.answers.get(request.method)
        found = given(received) if given is not None else refusal(NotFound("no such thing"))
        if found is None:
            exchange.start(200, (_JSON,))
            exchange.abort()
        else:
            exchange.reply(found[0], (_JSON,), msgspec.json.encode(found[1]))


def refusal(error: ApiError) -> Answer:
    """An error, as it is answered."""
    return error.code, error.status()


def made(received: ReceivedRequest, *, uid: str = "", phase: str = "Ready", revision: int = 5, **status: Any) -> Object:
    """The LogicalCluster of the response to an order; `uid` makes it another Workspace's."""
    order = received.body
    owner = {**order["spec"]["owner"], **({"uid": uid} if uid else {})}
    annotations = {**order["metadata"]["annotations"], "kcp.io/cluster": received.cluster}
    return {
        **order,
        "metadata": {
            "name": "cluster",
            "annotations": annotations,
            "uid": str(uuid.uuid4()),
            "resourceVersion": f"{revision:016}",
            "finalizers": ["core.kcp.io/logicalcluster-deletion"],
        },
        "spec": {**order["spec"], "owner": owner},
        "status": {"phase": phase, "conditions": [], **status},
    }


def published(key: Any, obj: Object, revision: int) -> Replica:
    """An object as the stream of shard `far` delivers it."""
    told = {**obj, "metadata": {**obj["metadata"], "resourceVersion": f"{revision:016}"}}
    return Replica(FarShard.name, key, msgspec.json.encode(told), revision, 1)


async def comes(holds: Callable[[], object]) -> None:
    """Return once a condition holds."""
    async with asyncio.timeout(TIMEOUT_S):
        while not holds():  # noqa: ASYNC110 - nobody announces it
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def far_shard() -> AsyncIterator[FarShard]:
    """A far shard that listens; it ends with the context."""
    far = FarShard()
    await far.start()
    try:
        yield far
    finally:
        await far.peers.close()
        await far.stop()
        await asyncio.sleep(0)
