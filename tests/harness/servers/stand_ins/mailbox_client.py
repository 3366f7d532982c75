"""A client of a mailbox for a translator under test: it serves ConfigMaps and has every Namespace.

class Mailbox(MailboxClient):
    async def apply(self, resource: Resource, obj: Object, manager: str = "") -> Object: ...
"""

from __future__ import annotations

from typing import Self

from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import Details, NotFound


class MailboxClient:
    """What a translator reads of any mailbox. Objects and answers to writes are the test's own."""

    def cluster(self, name: str) -> Self:
        return self

    async def discover(self, path: str) -> Object:
        row = {"resource": "configmaps", "scope": "Namespaced", "verbs": ["list"]}
        versions = [{"version": "v1", "resources": [row]}]
        return {"items": [{"metadata": {}, "versions": versions}] if path == "/api" else []}

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        if resource.plural == "namespaces":
            return {"metadata": {"name": name}}
        raise NotFound("it is not there", details=Details(name=name))

    async def list(self, resource: Resource, **options: str) -> Object:
        return {"items": []}
