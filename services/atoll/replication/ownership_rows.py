"""The Workspaces and LogicalClusters of one moment, as the ownership resolver reads them.

`replica_writer` makes one for each step, over a snapshot and the rows that it is about to write. Rows of this shard are
its own objects. Invariant: an incoming row hides the row that it replaces, so the resolver sees the state that the same
transaction leaves behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TypeAlias

from atoll.machinery.kcp.sharding.ownership import Owner
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.meta.wellknown import SINGLETON
from atoll.machinery.storage.contract import CorruptRecord, Position, Scope, Snapshot
from atoll.replication.readable_pages import ReadPage, readable
from atoll.replication.root_types import RootTypes

#: Values about to be written, by origin and key; an empty one is a deletion.
IncomingRows: TypeAlias = Mapping[tuple[str, ObjectKey], bytes]


class OwnershipRows:
    """`kcp.sharding.ownership.Rows` over a snapshot, with the rows that the next transaction writes."""

    def __init__(
        self, snapshot: Snapshot, own: str, types: RootTypes, followed: Sequence[str], incoming: IncomingRows
    ) -> None:
        self.own = own
        #: The shards that may hold roots, by cluster.
        self.holders: Mapping[str, str] = {}
        self._snapshot, self._types, self._followed, self._incoming = snapshot, types, followed, incoming

    def origins(self) -> Sequence[str]:
        return self._followed

    def seat(self, cluster: str) -> Owner | None:
        route = self._snapshot.replicas.route_of(cluster)
        return Owner(route.shard, route.generation) if route is not None else None

    def holder(self, cluster: str) -> str:
        return self.holders.get(cluster, "")

    def logical_cluster(self, origin: str, cluster: str) -> bytes | None:
        return self._value(origin, ObjectKey(LOGICAL_CLUSTERS, cluster, "", SINGLETON))

    def workspace(self, origin: str, cluster: str, name: str) -> bytes | None:
        return self._value(origin, ObjectKey(self._types.workspaces, cluster, "", name))

    def workspaces(self, origin: str, cluster: str, after: str, limit: int) -> Sequence[tuple[str, bytes]]:
        scope, place = Scope(self._types.workspaces, cluster), Position(cluster, "", after) if after else None
        snapshot = self._snapshot
        read: ReadPage = snapshot.scan if origin == self.own else partial(snapshot.replicas.rows_of, origin)
        records = readable(read, scope, place, limit)
        return [(each.key.name, self._incoming.get((origin, each.key), each.value)) for each in records]

    def _value(self, origin: str, key: ObjectKey) -> bytes | None:
        incoming = self._incoming.get((origin, key))
        if incoming is not None:
            return incoming or None
        try:
            if origin == self.own:
                record = self._snapshot.get(key)
                return record.value if record is not None else None
            row = self._snapshot.replicas.row_of(origin, key)
            return row[0].value if row is not None else None
        except CorruptRecord:
            # The store has raised its alarm; a damaged row claims nothing.
            return None
