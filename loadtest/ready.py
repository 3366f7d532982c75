"""Creates workspaces and waits until they are Ready, many at a time.

One wildcard watch by shard-admin tells when each Workspace is Ready, wherever it stands; the POST is kcp-admin's.
Ready means what the phase promises: the first of each run is looked into (`check`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import msgspec

from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.objects import Object, encode_json
from loadtest.bench import CONFIG_MAPS, WORKSPACES, workspace
from loadtest.http import Connection, connect
from loadtest.server import Server

EXPORTS = Resource("apis.kcp.io", "v1alpha2", "apiexports", False)
BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", False)
ACCOUNTS = Resource("", "v1", "serviceaccounts")
TIMEOUT_S = 30.0


class _Metadata(msgspec.Struct):
    name: str = ""


class _Spec(msgspec.Struct):
    cluster: str = ""


class _Status(msgspec.Struct):
    phase: str = ""


class _Workspace(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _Event(msgspec.Struct):
    object: _Workspace


_decode = msgspec.json.Decoder(_Event).decode


class Poster:
    """One kept connection that makes workspaces, one at a time."""

    def __init__(self, server: Server, ready: Readiness) -> None:
        self._origin, self._ready = server.origin, ready
        self._connection = Connection(self._answered)
        self._status: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def _answered(self, _: Connection, status: int, size: int) -> None:
        if not self._status.done():
            self._status.set_result(status)

    async def open(self) -> Poster:
        await connect(self._origin, 1, lambda: self._connection)
        return self

    async def send(self, method: str, path: str, body: object = None) -> int:
        """Any request; gives the status code, 0 if the connection is lost meanwhile.

        A server closes connections that are idle: another one is opened then.
        """
        if self._connection.lost:
            self._connection = Connection(self._answered)
            await self.open()
        self._status = asyncio.get_running_loop().create_future()
        self._connection.send(self._origin.request(method, path, encode_json(body) if body is not None else b""))
        return await self._status

    async def make(self, parent: str, name: str, type: str = "universal") -> tuple[float, str]:
        """POST a workspace and wait until it is Ready: seconds, and its logical cluster."""
        ready = self._ready.expect(name)
        began = time.perf_counter()
        status = await self.send("POST", f"/clusters/{parent}{WORKSPACES.path()}", workspace(name, type))
        if status != 201:
            raise RuntimeError(f"POST of a workspace was answered {status}")
        async with asyncio.timeout(TIMEOUT_S):
            at, cluster = await ready
        return at - began, cluster

    def close(self) -> None:
        self._connection.close()


class Readiness:
    """Waiting creates by workspace. Names are unique in a run."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[tuple[float, str]]] = {}

    def expect(self, name: str) -> asyncio.Future[tuple[float, str]]:
        """The moment (perf_counter) and the cluster once it is Ready."""
        self._waiting[name] = asyncio.get_running_loop().create_future()
        return self._waiting[name]

    def tell(self, line: bytes) -> None:
        """Take one line of the watch."""
        if b'"phase":"Ready"' not in line:
            return
        found = _decode(line).object
        future = self._waiting.pop(found.metadata.name, None)
        if future is not None and found.status.phase == "Ready":
            future.set_result((time.perf_counter(), found.spec.cluster))


class _Watch(asyncio.Protocol):
    def __init__(self, request: bytes, ready: Readiness) -> None:
        self._request, self._ready, self._rest = request, ready, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            # What frames the chunks stands on lines of its own.
            if line.startswith(b'{"type"'):
                self._ready.tell(line)


@asynccontextmanager
async def readiness(server: Server) -> AsyncIterator[Readiness]:
    """Watch all workspaces of the shard."""
    origin = msgspec.structs.replace(server.origin, token=server.token("shard-admin"))
    async with server.client("root") as client:
        export = await client.get(EXPORTS, "tenancy.kcp.io")
    workspaces = msgspec.structs.replace(WORKSPACES, identity=export["status"]["identityHash"])
    async with server.client("*", "shard-base") as client:
        revision = (await client.list(workspaces))["metadata"]["resourceVersion"]
    request = origin.request("GET", f"/clusters/*{workspaces.path()}?watch=1&resourceVersion={revision}")
    ready = Readiness()
    transports = await connect(origin, 1, lambda: _Watch(request, ready))
    try:
        yield ready
    finally:
        for transport in transports:
            transport.abort()


@asynccontextmanager
async def posters(server: Server, ready: Readiness, count: int) -> AsyncIterator[list[Poster]]:
    """Some posters, closed at the end."""
    found = await asyncio.gather(*(Poster(server, ready).open() for _ in range(count)))
    try:
        yield found
    finally:
        for poster in found:
            poster.close()


async def check(server: Server, cluster: str) -> None:
    """Check the parts of a Ready workspace. Raises RuntimeError."""
    async with server.client(cluster) as client:
        objects: list[Object] = []
        for namespace in ("default", "kube-system"):
            objects.append(await client.get(ACCOUNTS, "default", namespace))
            objects.append(await client.get(CONFIG_MAPS, "kube-root-ca.crt", namespace))
        objects.append(await client.get(BINDINGS, "workspace-admin"))
        bound = await client.list(Resource("apis.kcp.io", "v1alpha2", "apibindings", False))
        phases = {(item.get("status") or {}).get("phase") for item in bound["items"]}
        groups = await client.request("GET", "/apis")
    served = {group["name"] for group in groups["groups"]}
    if phases - {"Bound"} or "tenancy.kcp.io" not in served or len(objects) != 5:
        raise RuntimeError(f"a Ready workspace has bindings in {phases} and serves {sorted(served)}")


def numbered(prefix: str, count: int) -> list[str]:
    """Names that no other run of this process used."""
    begin = next(_runs)
    return [f"{prefix}{begin}-{number}" for number in range(count)]


_runs = iter(range(1, 1 << 30))
