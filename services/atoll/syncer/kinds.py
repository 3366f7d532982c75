"""The kinds that a cluster serves, by discovery, each version read once.

Invariant: what was not there is asked for again, and what was there is kept until somebody says that it may have
changed.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import ApiError


class Kind(msgspec.Struct, frozen=True):
    """A kind of a cluster."""

    resource: Resource
    kind: str
    has_status: bool
    verbs: frozenset[str]


class Kinds:
    """Discovery of one cluster."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._versions: dict[tuple[str, str], dict[str, Kind]] = {}

    def forget(self, group: str) -> None:
        """Read a group again: a definition of it changed."""
        for each in [each for each in self._versions if each[0] == group]:
            del self._versions[each]

    async def find(self, group: str, resource: str, version: str) -> Kind | None:
        """Return a kind by its resource; None if it is not served in this version."""
        found = await self.version(group, version)
        if resource not in found:
            self._versions.pop((group, version), None)
        return found.get(resource)

    async def resource_of(self, group: str, version: str, kind: str) -> str:
        """Return the resource of a kind, empty if it is not served."""
        found = await self.version(group, version)
        name = next((name for name, each in found.items() if each.kind == kind), "")
        if not name:
            self._versions.pop((group, version), None)
        return name

    async def preferred(self, group: str) -> str:
        """Return the version of a group that the server prefers, empty if there is none."""
        if not group:
            return "v1"
        found = await self._read(f"/apis/{group}")
        return "" if found is None else str(found["preferredVersion"]["version"])

    async def all(self) -> list[Kind]:
        """Return every kind that can be listed, in the version that the server prefers."""
        groups = (await self._client.request("GET", "/apis"))["groups"]
        versions = [("", "v1"), *((each["name"], each["preferredVersion"]["version"]) for each in groups)]
        found = [kind for each in versions for kind in (await self.version(*each)).values()]
        return [kind for kind in found if "list" in kind.verbs]

    async def version(self, group: str, version: str) -> dict[str, Kind]:
        """Return the kinds of a version, nothing if it is not served."""
        found = self._versions.get((group, version))
        if found is None:
            path = f"/apis/{group}/{version}" if group else f"/api/{version}"
            answer = await self._read(path)
            if answer is None:
                return {}
            found = self._versions[group, version] = dict(_kinds(group, version, answer["resources"]))
        return found

    async def _read(self, path: str) -> Object | None:
        """Return a document, None if it is not there: then kube-apiserver answers in plain text."""
        try:
            return await self._client.request("GET", path)
        except ApiError as error:
            if error.code == 404:
                return None
            raise


def _kinds(group: str, version: str, resources: list[Object]) -> Iterator[tuple[str, Kind]]:
    subresources = {each["name"] for each in resources}
    for each in resources:
        name = each["name"]
        if "/" not in name:
            resource = Resource(group, version, name, namespaced=each["namespaced"])
            verbs = frozenset(each["verbs"])
            yield name, Kind(resource, each["kind"], f"{name}/status" in subresources, verbs)
