"""Which shard may hold which root, as the Shard objects say: the annotation `shards.ROOTS`.

The replica writer keeps one and resolves the clusters whose holder changed. What was resolved last is a mark, written
with the decisions, so that a change during a restart is found. Invariant: the Shard objects are those of the shard
`root`, whatever other shards send.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import msgspec

from atoll.machinery.kcp.sharding.ownership import ROOT_SHARD, holders_of
from atoll.machinery.kcp.sharding.shards import ROOTS
from atoll.machinery.meta import rawscan
from atoll.machinery.meta.names import ROOT, ObjectKey, ResourceType
from atoll.machinery.meta.partial import Partial, SomeAnnotations
from atoll.machinery.storage.contract import Mark, Record, Scope, Snapshot
from atoll.machinery.storage.pages import pages, position_after
from atoll.replication.ownership_rows import IncomingRows
from atoll.replication.readable_pages import ReadPage, readable

#: The mark with the holders that owners were last resolved with.
ROOTS_MARK = "replication.roots"
_PAGE = 500
_NAMED = rawscan.text(ROOTS)


class _Roots(msgspec.Struct, frozen=True):
    roots: str = msgspec.field(default="", name=ROOTS)


_decoder = msgspec.json.Decoder(Partial[SomeAnnotations[_Roots]])


class RootHolders:
    """The holders of roots by cluster, as last resolved. `state` is the mark; `own` is this shard's name."""

    def __init__(self, own: str, state: bytes | None) -> None:
        self._own = own
        self.resolved: Mapping[str, str] = msgspec.json.decode(state, type=dict[str, str]) if state else {}

    def read(self, snapshot: Snapshot, shards: ResourceType, incoming: IncomingRows) -> dict[str, str]:
        """Return the holders according to the Shard objects of a snapshot and the rows about to be written."""
        records = list(self._shards(snapshot, shards))
        found = {record.key: record.value for record in records}
        found.update((key, value) for (origin, key), value in incoming.items() if _is_shard(origin, key, shards))
        return holders_of((key.name, roots_in(value)) for key, value in found.items())

    def changed(self, now: Mapping[str, str]) -> list[str]:
        """Return the clusters whose holder is another one now."""
        return [each for each in {**self.resolved, **now} if self.resolved.get(each) != now.get(each)]

    def _shards(self, snapshot: Snapshot, shards: ResourceType) -> Iterator[Record]:
        here = self._own == ROOT_SHARD
        read: ReadPage = snapshot.scan if here else partial(snapshot.replicas.rows_of, ROOT_SHARD)
        for page in pages(
            lambda after: readable(read, Scope(shards, ROOT), after, _PAGE), lambda row: position_after(row.key)
        ):
            yield from page


def mark(holders: Mapping[str, str]) -> Mark:
    """Return the mark of holders that owners were resolved with."""
    return Mark(ROOTS_MARK, msgspec.json.encode(holders))


def names_roots(origin: str, key: ObjectKey, shards: ResourceType, *values: bytes) -> bool:
    """Whether a change of a Shard object, from one value to another, may change who holds a root."""
    if not _is_shard(origin, key, shards) or not any(_NAMED in value for value in values):
        return False
    return len({roots_in(value) for value in values}) > 1


def roots_in(shard: bytes) -> str:
    """Return the annotation of a Shard object; "" where there is none."""
    if _NAMED not in shard:
        return ""
    try:
        annotations = _decoder.decode(shard).metadata.annotations
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    return annotations.roots if annotations is not None else ""


def _is_shard(origin: str, key: ObjectKey, shards: ResourceType) -> bool:
    return key.type == shards and origin == ROOT_SHARD and key.cluster == ROOT
