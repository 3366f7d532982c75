"""Writes into the site, after a look at what is there.

The steps call this. Invariant: an object with other content is replaced only if that was asked for, or if the site made
it by itself with the workspace; a dry run sends nothing that writes.
"""

from __future__ import annotations

from collections.abc import Callable

from atoll.cli.kubectl.tree_import import report as counts
from atoll.cli.kubectl.tree_import.carried import Names, carried, digest, translated
from atoll.cli.kubectl.tree_import.report import Report
from atoll.cli.kubectl.tree_import.source import objects
from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import AlreadyExists, ApiError, Conflict, NotFound

#: Whether an object is as the site made it, and may be replaced.
IsGenerated = Callable[[Object], bool]
Key = tuple[str, str]


def _never(_: Object) -> bool:
    return False


class Destination:
    """The site. `absent` are the workspaces that a dry run would create."""

    def __init__(self, client: Client, names: Names, report: Report, *, overwrite: bool, dry_run: bool) -> None:
        self._client, self._names, self._report = client, names, report
        self._overwrite, self.dry_run = overwrite, dry_run
        self.absent: set[str] = set()

    def at(self, path: str) -> Client:
        """Return a client of a workspace of the site."""
        return self._client.cluster(path)

    async def find(self, path: str, resource: Resource, name: str, namespace: str = "") -> Object | None:
        """Return an object of the site, None if it is not there. Raises ApiError."""
        if path in self.absent:
            return None
        try:
            return await self.at(path).get(resource, name, namespace)
        except NotFound:
            return None

    async def digests(self, path: str, resource: Resource) -> dict[Key, tuple[bytes, bool]]:
        """Return hashes of the content of a kind, and whether each object has a status."""
        if path in self.absent:
            return {}
        return {
            key_of(each): (digest(carried(each)), bool(each.get("status")))
            async for each in objects(self.at(path), resource)
        }

    def content(self, obj: Object) -> Object:
        """Return what of an object of the source belongs into the site."""
        return translated(carried(obj), self._names)

    async def put(
        self, path: str, resource: Resource, content: Object, is_generated: IsGenerated = _never
    ) -> Object | None:
        """Create an object, or find it there; return it as it is in the site, None if it is not, or in a dry run.

        Raises ApiError if the site refuses it.
        """
        name, namespace = content["metadata"]["name"], content["metadata"].get("namespace", "")
        found = await self.find(path, resource, name, namespace)
        if found is None:
            if self.dry_run:
                self._report.count(counts.CREATED)
                return None
            try:
                made = await self.at(path).create(resource, content)
            except AlreadyExists:
                # The site made it meanwhile, as it does with accounts of new namespaces.
                found = await self.at(path).get(resource, name, namespace)
            else:
                self._report.count(counts.CREATED)
                return made
        return await self._compared(path, resource, content, found, is_generated)

    async def _compared(
        self, path: str, resource: Resource, content: Object, found: Object, is_generated: IsGenerated
    ) -> Object:
        if carried(found) == content or await self._is_same(path, resource, content, found):
            self._report.count(counts.SAME)
        elif self._overwrite or is_generated(found):
            self._report.count(counts.CHANGED)
            if not self.dry_run:
                return await self.at(path).update(resource, _replacing(content, found))
        else:
            self._report.conflict(path, f"{resource.plural} {'/'.join(filter(None, reversed(key_of(found))))}")
        return found

    async def _is_same(self, path: str, resource: Resource, content: Object, found: Object) -> bool:
        """Whether the site, which sets defaults, would keep the object as it is. Nothing is written."""
        metadata = found["metadata"]
        target = resource.path(metadata.get("namespace", ""), metadata["name"])
        try:
            kept = await self.at(path).request("PUT", target, {"dryRun": "All"}, _replacing(content, found))
        except Conflict:
            return False
        except ApiError as error:
            # What may not change is other content, too.
            if error.code in {400, 403, 422}:
                return False
            raise
        return carried(kept) == carried(found)

    async def put_status(self, path: str, resource: Resource, obj: Object, made: Object) -> None:
        """Write the status of an object of the source where the site's has none. Raises ApiError."""
        if obj.get("status") and not made.get("status") and not self.dry_run:
            await self.at(path).update(resource, {**made, "status": obj["status"]}, "status")


def key_of(obj: Object) -> Key:
    """Return name and namespace of an object."""
    return obj["metadata"]["name"], obj["metadata"].get("namespace", "")


def _replacing(content: Object, found: Object) -> Object:
    """Return content as the next version of an object; what the site computed in its metadata stays."""
    metadata = found["metadata"]
    kept = carried(found)["metadata"]
    computed = {
        field: {key: value for key, value in (metadata.get(field) or {}).items() if key not in kept.get(field, {})}
        for field in ("labels", "annotations")
    }
    finalizers = [name for name in metadata.get("finalizers") or () if name not in kept.get("finalizers", ())]
    mine = content["metadata"]
    whole = {
        **metadata,
        **{field: {**computed[field], **mine.get(field, {})} for field in computed},
        "finalizers": [*finalizers, *mine.get("finalizers", ())],
        "ownerReferences": mine.get("ownerReferences", []),
    }
    return {**found, **content, "metadata": whole}
