"""What a workspace serves: each resource at the version that the server prefers, with the others that it has.

Programs that work on kinds that they do not know call `served_kinds`. Invariant: a resource is there once, by group and
plural, at the first of its group's versions that has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec

from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.objects import Object


class ServedKind(msgspec.Struct, frozen=True):
    """A resource with its kind, its verbs, its subresources, all versions that have it, in the server's order, and its
    other names: singular and short ones."""

    resource: Resource
    kind: str
    verbs: frozenset[str]
    subresources: frozenset[str]
    versions: tuple[str, ...]
    aliases: frozenset[str]


async def served_kinds(client: Client) -> dict[tuple[str, str], ServedKind]:
    """Return the kinds of the client's cluster, by group and plural. Raises ApiError, ClientError, TimeoutError."""
    documents = await asyncio.gather(client.discover("/api"), client.discover("/apis"))
    found: dict[tuple[str, str], ServedKind] = {}
    for document in documents:
        for each in _kinds(document):
            key = each.resource.group, each.resource.plural
            first = found.get(key, each)
            versions = (*first.versions, *each.versions) if first is not each else each.versions
            found[key] = msgspec.structs.replace(first, versions=versions)
    return found


def _kinds(document: Object) -> Iterator[ServedKind]:
    for group in document["items"]:
        name = (group.get("metadata") or {}).get("name") or ""
        for version in group["versions"]:
            for row in version.get("resources") or ():
                resource = Resource(name, version["version"], row["resource"], row["scope"] == "Namespaced")
                subresources = frozenset(each["subresource"] for each in row.get("subresources") or ())
                kind = (row.get("responseKind") or {}).get("kind", "")
                aliases = frozenset((row.get("singularResource") or kind.lower(), *(row.get("shortNames") or ())))
                yield ServedKind(resource, kind, frozenset(row["verbs"]), subresources, (resource.version,), aliases)
