"""WorkspaceTypes: the URLs of their initializing and terminating virtual workspaces.

Watches: WorkspaceTypes of this shard, and the Shards of the site. Writes: status with the URLs of the two virtual
workspaces on each shard, ordered by shard name, and conditions. Converges because the URLs are computed from type and
Shards alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from atoll.controllers.shard_predicate import ShardChangePredicate
from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.control.manager import ReplicaController
from atoll.machinery.kcp.bootstrap.objects import lifecycle_urls
from atoll.machinery.kcp.sharding.shards import virtual_workspace_url
from atoll.machinery.meta import times
from atoll.machinery.meta.conditions import Condition, with_conditions
from atoll.machinery.meta.names import ROOT, ResourceType
from atoll.machinery.meta.objects import Object, decode, status_of
from atoll.machinery.storage.contract import LogEntry, Operation, Scope
from atoll.machinery.storage.pages import each_record
from atoll.tenancy.lookups import Lookups


class WorkspaceTypeStatus(ReplicaController):
    """Key: (cluster, type name)."""

    name = "workspacetype"
    workers = 1

    def __init__(self, loopback: Loopback, facts: Lookups, url: str) -> None:
        """`url`: the URL of this shard, used while no Shard has been replicated from root."""
        self._loopback, self._type, self._url = loopback, facts.identities.workspace_types, url
        self._shards, self._shard_changes = facts.identities.shard_objects, ShardChangePredicate()

    # --- keys ---

    def watches(self, type: ResourceType) -> bool:
        return type in {self._type, self._shards}

    def watches_replicas(self, type: ResourceType) -> bool:
        return type == self._shards

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        if entry.key.type == self._shards:
            if self._shard_changes.has_changed(entry):
                yield from self.all_keys()
        elif entry.operation is not Operation.DELETED:
            yield entry.key.cluster, entry.key.name

    keys_of_replica = keys

    def all_keys(self) -> Iterable[Hashable]:
        for key in self._loopback.keys(Scope(self._type)):
            yield key.cluster, key.name

    # --- reconcile ---

    def _urls(self, cluster: str, name: str) -> list[Object]:
        """Return the entries of the initializing and terminating virtual workspaces of each shard, by shard name."""
        with self._loopback.store.snapshot() as snapshot:
            shards = [decode(each.value) for each in each_record(federated(snapshot), Scope(self._shards, ROOT))]
        bases = [virtual_workspace_url(each) for each in shards] or [self._url.rstrip("/")]
        urls = dict.fromkeys(base for base in bases if base)
        return [entry for url in urls for entry in lifecycle_urls(url, cluster, name)]

    async def reconcile(self, key: tuple[str, str]) -> float | None:
        cluster, name = key
        obj = self._loopback.get(self._type, cluster, "", name)
        if obj is None or obj["metadata"].get("deletionTimestamp"):
            return None
        ready = (Condition(type, "True") for type in ("VirtualWorkspaceURLsReady", "Ready"))
        wanted = with_conditions(status_of(obj), times.now(), *ready)
        wanted["virtualWorkspaces"] = self._urls(cluster, name)
        if wanted == status_of(obj):
            return None
        with self._loopback.store.snapshot() as snapshot:
            kind = self._loopback.core.catalogs.of(snapshot, cluster).of_type(self._type)
        if kind is None:
            return None
        await self._loopback.try_update(Target(kind, cluster, "", name, "status"), {**obj, "status": wanted})
        return None
