"""A server with one Lease, as the client of Leases asks it."""

from __future__ import annotations

from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import AlreadyExists, Conflict, NotFound
from atoll.machinery.patch.merge_patch import merge_patch


class LeaseServer:
    """Answers `get`, `create`, `update` and `patch` of a client."""

    def __init__(self) -> None:
        self.lease: Object | None = None
        self.revision = 0

    async def get(self, resource: Resource, name: str, namespace: str) -> Object:
        if self.lease is None:
            raise NotFound(name)
        return self.lease

    async def create(self, resource: Resource, obj: Object) -> Object:
        if self.lease is not None:
            raise AlreadyExists("it is there")
        return self.store(obj)

    async def update(self, resource: Resource, obj: Object) -> Object:
        if self.lease is None or self.lease["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
            raise Conflict("modified")
        return self.store(obj)

    async def patch(self, resource: Resource, name: str, patch: Object, namespace: str) -> Object:
        return self.store(merge_patch(await self.get(resource, name, namespace), patch))

    def store(self, obj: Object) -> Object:
        """Write the Lease; return it with its new revision."""
        self.revision += 1
        self.lease = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.revision)}}
        return self.lease
