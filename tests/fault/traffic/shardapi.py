"""A shard under test as clients reach it: administrators' clients, scratch workspaces, raw requests.

Scenarios open one for a `harness.servers.shard_process.ShardProcess` and close it before they kill or stop the process.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import WORKSPACES, Resource
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import ApiError, NotFound
from atoll.machinery.wire.client import ClientResponse, HttpClient, Origin
from atoll.machinery.wire.exchange import Headers
from atoll.machinery.wire.pending_response import ClientLimits
from harness.servers.shard_process import ShardProcess

CONFIGMAPS = Resource("", "v1", "configmaps")
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
REQUEST_TIMEOUT_S = 20.0
_READY_S = 20.0


class ShardApi:
    """Requests as kcp-admin. An async context manager."""

    def __init__(self, shard: ShardProcess) -> None:
        self.shard = shard
        target = Client.from_kubeconfig(str(shard.kubeconfig), "base").target
        origin = Origin(target.host, target.port, target.tls, target.server_name)
        self.http = HttpClient(origin, ClientLimits(request_timeout_s=REQUEST_TIMEOUT_S))
        self.target = target
        #: Headers of system:masters, who alone watch every cluster at once.
        self.masters = Client.from_kubeconfig(str(shard.kubeconfig), "shard-base").target.headers

    async def __aenter__(self) -> ShardApi:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.http.close()

    def client(self, cluster: str) -> Client:
        """A typed client of one logical cluster, on the same connections."""
        return Client(self.target, cluster, http=self.http)

    async def ask(self, method: str, path: str, body: bytes = b"", content_type: str = "") -> ClientResponse:
        """Send one request with exactly these bytes; return any answer. Path from /clusters on."""
        headers = [*self.headers_for(path), ("accept", "application/json")]
        if content_type:
            headers.append(("content-type", content_type))
        return await self.http.request(method, path, tuple(headers), body)

    def headers_for(self, path: str) -> Headers:
        """Who asks: kcp-admin, or system:masters where the path means every cluster."""
        return self.masters if path.startswith("/clusters/*/") else self.target.headers

    async def workspace(self, name: str) -> str:
        """A new Ready workspace below root; return its logical cluster's name."""
        root = self.client("root")
        obj: Object = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}}
        await root.create(WORKSPACES, obj)
        async with asyncio.timeout(_READY_S):
            while True:
                found = await root.get(WORKSPACES, name)
                if found.get("status", {}).get("phase") == "Ready":
                    return str(found["spec"]["cluster"])
                await asyncio.sleep(0.02)

    async def define(self, cluster: str, definition: Object, resource: Resource) -> None:
        """Create a CustomResourceDefinition and wait until its resource is served."""
        client = self.client(cluster)
        await client.create(CRDS, definition)
        async with asyncio.timeout(_READY_S):
            while True:
                try:
                    await client.list(resource)
                    return
                except NotFound:
                    await asyncio.sleep(0.02)

    async def present(self, cluster: str, resource: Resource, name: str, namespace: str) -> Object | None:
        """An object; None if it does not exist."""
        try:
            return await self.client(cluster).get(resource, name, namespace)
        except ApiError as error:
            if error.code == 404:
                return None
            raise
