"""A server with one Lease, as the client of Leases asks it."""

from __future__ import annotations

from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import AlreadyExists, Conflict, NotFound


class LeaseServer:
    """Answers `get`, `create` and `update` of a client."""

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

    def store(self, obj: Object) -> Object:
        """Write the Lease; return it with its new revision."""
        self.revision += 1
        self.lease = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.revision)}}
        return self.lease
