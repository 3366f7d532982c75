"""WorkspaceTypes: where their initializers and terminators find what waits for them.

Watches: WorkspaceTypes. Writes: status with a URL for each of the two lifecycle views on this shard, and conditions.
Converges because the URLs follow from the type's name alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from atoll.controllers.facts import Facts
from atoll.machinery.apiserver.loopback import Loopback, Target
from atoll.machinery.kcp.bootstrap import lifecycle_urls
from atoll.machinery.meta import times
from atoll.machinery.meta.conditions import Condition, set_condition
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.status import Conflict, NotFound
from atoll.machinery.storage.contract import LogEntry, Operation, Scope


class WorkspaceTypeStatus:
    """Key: (cluster, type name)."""

    name = "workspacetype"
    workers = 1

    def __init__(self, loopback: Loopback, facts: Facts, url: str) -> None:
        self._loopback, self._type, self._url = loopback, facts.identities.workspace_types, url

    def watches(self, type: ResourceType) -> bool:
        return type == self._type

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        if entry.operation is not Operation.DELETED:
            yield entry.key.cluster, entry.key.name

    def all_keys(self) -> Iterable[Hashable]:
        for key in self._loopback.keys(Scope(self._type)):
            yield key.cluster, key.name

    async def reconcile(self, key: tuple[str, str]) -> float | None:
        cluster, name = key
        obj = self._loopback.get(self._type, cluster, "", name)
        if obj is None or obj["metadata"].get("deletionTimestamp"):
            return None
        status = obj.get("status") or {}
        conditions = status.get("conditions") or []
        for type in ("VirtualWorkspaceURLsReady", "Ready"):
            conditions = set_condition(conditions, Condition(type, "True"), times.now())
        wanted = {**status, "conditions": conditions, "virtualWorkspaces": lifecycle_urls(self._url, cluster, name)}
        if wanted == status:
            return None
        with self._loopback.store.snapshot() as snapshot:
            kind = self._loopback.core.catalogs.of(snapshot, cluster).of_type(self._type)
        if kind is None:
            return None
        try:
            await self._loopback.update(Target(kind, cluster, "", name, "status"), {**obj, "status": wanted})
        except (Conflict, NotFound):
            return None
        return None
