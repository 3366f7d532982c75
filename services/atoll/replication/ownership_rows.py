"""What is known of Workspaces and LogicalClusters, for the reckoning of who owns what: rows, routes, and what arrives.

`projection` points it at a snapshot, tells it what is about to be written, and lets `kcp.reckoning` look. Rows of this
shard itself are its own objects. Invariant: what arrives hides the row that it replaces, so the reckoning sees the
state that the same transaction leaves behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

import msgspec
import structlog

from atoll.machinery.kcp.sharding.ownership import Owner
from atoll.machinery.meta.names import ROOT, ObjectKey, ResourceType
from atoll.machinery.meta.types import API_EXPORTS, LOGICAL_CLUSTERS
from atoll.machinery.meta.wellknown import SINGLETON
from atoll.machinery.storage.contract import CorruptRecord, Position, Record, ReplicaView, Scope, Snapshot
from atoll.machinery.storage.pages import position_after

log = structlog.get_logger()

_TENANCY, _SHARDS = "tenancy.kcp.io", "shards.core.kcp.io"


class RootTypes(msgspec.Struct, frozen=True):
    """The types of root's own kinds, under the identities of root's exports."""

    workspaces: ResourceType
    shards: ResourceType


def root_types(tenancy: str, shards: str) -> RootTypes:
    """The types under two identity hashes: of the exports `tenancy.kcp.io` and `shards.core.kcp.io`."""
    return RootTypes(ResourceType(_TENANCY, "workspaces", tenancy), ResourceType("core.kcp.io", "shards", shards))


class _Status(msgspec.Struct, frozen=True):
    identityHash: str = ""


class _Export(msgspec.Struct, frozen=True):
    status: _Status = _Status()


_exports = msgspec.json.Decoder(_Export)


def learn_root_types(replicas: ReplicaView) -> RootTypes | None:
    """The types as root's exports tell them, for who has no other word; None while they have not arrived."""
    hashes = [_identity(replicas.get(ObjectKey(API_EXPORTS, ROOT, "", name))) for name in (_TENANCY, _SHARDS)]
    return root_types(*hashes) if all(hashes) else None


def _identity(export: Record | None) -> str:
    return _exports.decode(export.value).status.identityHash if export is not None else ""


class ReadPage(Protocol):
    """`scan` of a snapshot, or `rows_of` with its origin."""

    def __call__(self, scope: Scope, after: Position | None, limit: int, /) -> list[Record]: ...


def readable(read: ReadPage, scope: Scope, after: Position | None, limit: int) -> list[Record]:
    """A page without the records that are damaged: of those the store has raised its alarm already."""
    try:
        return read(scope, after, limit)
    except CorruptRecord:
        found: list[Record] = []
    while len(found) < limit:
        before = after
        try:
            page = read(scope, after, 1)
            key = page[0].key if page else None
            found += page
        except CorruptRecord as error:
            key = error.key
        after = position_after(key) if key is not None else after
        if after == before:
            break
    return found


class OwnershipRows:
    """`kcp.ownership.Rows` over a store. `view` is the snapshot it reads now."""

    view: Snapshot

    def __init__(self, own: str, types: RootTypes, followed: Sequence[str]) -> None:
        self.own, self._types, self._followed = own, types, followed
        self._arriving: dict[tuple[str, ObjectKey], bytes] = {}

    def arrive(self, origin: str, key: ObjectKey, value: bytes) -> None:
        """Something is about to be written; b"": it is about to go."""
        self._arriving[origin, key] = value

    def settled(self) -> None:
        """What was about to be written is in the next snapshot."""
        self._arriving.clear()

    def origins(self) -> Sequence[str]:
        return self._followed

    def seat(self, cluster: str) -> Owner | None:
        route = self.view.replicas.route_of(cluster)
        return Owner(route.shard, route.generation) if route is not None else None

    def logical_cluster(self, origin: str, cluster: str) -> bytes | None:
        return self._sent(origin, ObjectKey(LOGICAL_CLUSTERS, cluster, "", SINGLETON))

    def workspace(self, origin: str, cluster: str, name: str) -> bytes | None:
        return self._sent(origin, ObjectKey(self._types.workspaces, cluster, "", name))

    def workspaces(self, origin: str, cluster: str, after: str, limit: int) -> Sequence[tuple[str, bytes]]:
        scope, place = Scope(self._types.workspaces, cluster), Position(cluster, "", after) if after else None
        read: ReadPage = self.view.scan if origin == self.own else partial(self.view.replicas.rows_of, origin)
        records = readable(read, scope, place, limit)
        return [(each.key.name, self._arriving.get((origin, each.key), each.value)) for each in records]

    def _sent(self, origin: str, key: ObjectKey) -> bytes | None:
        arriving = self._arriving.get((origin, key))
        if arriving is not None:
            return arriving or None
        try:
            if origin == self.own:
                record = self.view.get(key)
                return record.value if record is not None else None
            sent = self.view.replicas.row_of(origin, key)
            return sent[0].value if sent is not None else None
        except CorruptRecord:
            # The store has raised its alarm; who cannot be read names nobody.
            return None
