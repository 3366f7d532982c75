"""Server-side apply to the status of endpoint slices: in-process for local slices, by a call for remote ones.

Used by `endpointslice_urls` and `cached_endpointslices`; a slice's own shard removes the endpoints of removed shards in
the same way. Invariant: a shard writes under its own name as field manager, so that no shard changes another's entries.
"""

from __future__ import annotations

from collections.abc import Iterable

from atoll.controllers.shard_calls import ShardCaller
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.kcp.apis import endpointslices
from atoll.machinery.meta.names import ROOT, ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode, status_of
from atoll.machinery.storage.contract import Scope
from atoll.machinery.storage.pages import each_revision
from atoll.replication.peers import EXTERNAL_LOGICAL_CLUSTER_ADMIN
from atoll.tenancy.lookups import Lookups


class SliceStatus:
    """Writes the status of one kind of slices. `calls` None: there are no other shards."""

    def __init__(self, loopback: Loopback, facts: Lookups, type: ResourceType, calls: ShardCaller | None) -> None:
        self._loopback, self._facts, self._calls = loopback, facts, calls
        self._kind = loopback.core.catalogs.builtin(type)
        self._resource = Resource(self._kind.group, self._kind.version, self._kind.plural, namespaced=False)

    async def apply(self, cluster: str, obj: Object, manager: str) -> None:
        """Apply to the status of a slice. Raises NotFound, other errors of its shard, ShardUnavailable."""
        with self._loopback.store.snapshot() as snapshot:
            shard = "" if self._facts.is_here(snapshot, cluster) else snapshot.replicas.shard_of(cluster)

        async def ask(client: Client) -> Object:
            return await client.cluster(cluster).apply(self._resource, obj, subresource="status", manager=manager)

        if not shard:
            target = Target(self._kind, cluster, "", obj["metadata"]["name"], "status")
            await self._loopback.apply(target, obj, manager)
        elif self._calls is not None:
            await self._calls.call(shard, ask, EXTERNAL_LOGICAL_CLUSTER_ADMIN)


def every_slice(loopback: Loopback, type: ResourceType) -> Iterable[tuple[str, str]]:
    """Yield the key of each slice, local or replicated."""
    for key in loopback.keys(Scope(type)):
        yield key.cluster, key.name
    with loopback.store.snapshot() as snapshot:
        found = [] if snapshot.replicas.empty else [key for key, _ in each_revision(snapshot.replicas, Scope(type))]
    for key in found:
        yield key.cluster, key.name


class Shards:
    """The Shard objects of the site, as this shard knows them."""

    def __init__(self, facts: Lookups, own: str) -> None:
        self._facts, self._type, self.own = facts, facts.identities.shard_objects, own

    def own_object(self, view: View) -> Object | None:
        """Return this shard's own Shard object; None while it was not replicated from root, or where there is none."""
        record = federated(view).get(ObjectKey(self._type, ROOT, "", self.own))
        return decode(record.value) if record is not None else None

    def are_complete(self, view: View) -> bool:
        """Return whether Shard objects are complete: root is local, or this shard's own object has been replicated."""
        return self._facts.is_here(view, ROOT) or self.own_object(view) is not None

    def gone(self, view: View, obj: Object, path: str) -> list[str]:
        """Return the removed shards that have endpoints at `path` in a slice."""
        if not status_of(obj).get("endpoints") or not self.are_complete(view):
            return []
        names = {key.name for key, _ in each_revision(federated(view), Scope(self._type, ROOT))}
        return endpointslices.abandoned_managers(obj, path, names)
