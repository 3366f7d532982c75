"""A shard's log in memory, with objects, marks and compaction, for tests of its readers.

It obeys the protocol of `stream.log` as the shard's store does, so a test can write, compact, rewind and open
again without a file. Revisions are those of the hybrid clock.
"""

from __future__ import annotations

import asyncio
import bisect
import time
from collections.abc import Sequence

import msgspec
from google_crc32c import value as crc32c

from atoll.machinery.meta.names import CORE, ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, encode, splice
from atoll.machinery.stream.events import Operation
from atoll.machinery.stream.publisher.log_source import SourceEntry

CONFIGMAPS = ResourceType("", "configmaps", CORE)
SECRETS = ResourceType("", "secrets", CORE)
LEASES = ResourceType("coordination.k8s.io", "leases", CORE)
LOGICAL_CLUSTERS = ResourceType("core.kcp.io", "logicalclusters", CORE)
CLUSTER_ROLES = ResourceType("rbac.authorization.k8s.io", "clusterroles", CORE)


class Source(msgspec.Struct, frozen=True):
    shard: str = "root"
    shard_uid: str = "6f1c"
    lineage: str = "a1"
    epoch: int = 1_700_000_000


class Entry(msgspec.Struct, frozen=True):
    revision: int
    operation: int
    key: ObjectKey
    value: bytes
    sealed: bool
    crc: int
    previous: int
    previous_of_type: int


def object_json(key: ObjectKey, **members: object) -> Object:
    metadata = {"name": key.name, "annotations": members.pop("annotations", {})}
    return {"apiVersion": "v1", "kind": "Thing", "metadata": metadata, **members}


class ShardLog:
    """Write with `put` and `delete`; every write is committed at once."""

    def __init__(self, source: Source | None = None) -> None:
        self.identity = source or Source()
        self.entries: list[Entry] = []
        self.objects: dict[ObjectKey, Entry] = {}
        self.marks: dict[str, bytes] = {}
        self.published = -1
        self._floor = 0
        self._last = 0
        self._last_of: dict[tuple[ResourceType, str], int] = {}
        self._befores: dict[int, bytes] = {}
        self._waiters: set[asyncio.Future[None]] = set()

    # --- writing -----------------------------------------------------------------------------------------

    def put(self, key: ObjectKey, sealed: bool = False, **members: object) -> Entry:
        value, hole = encode(object_json(key, **members))
        before = self.objects.get(key)
        operation = Operation.MODIFIED if before else Operation.ADDED
        if sealed:
            value = bytes(byte ^ 0x5A for byte in value)
        crc = crc32c(value)
        previous = before.revision if before else 0
        revision = self._next_revision()
        stored = value if sealed else splice(value, hole, revision)
        entry = self._append(operation, Entry(revision, 0, key, stored, sealed, crc, previous, 0))
        self.objects[key] = entry
        return entry

    def delete(self, key: ObjectKey) -> Entry:
        before = self.objects.pop(key)
        image = msgspec.structs.replace(before, revision=self._next_revision(), previous=before.revision)
        return self._append(Operation.DELETED, image)

    def compact(self, revision: int) -> None:
        self._floor = max(self._floor, revision)
        self.entries = [entry for entry in self.entries if entry.revision > revision]

    def reopened(self, *, lineage: str = "", epoch: int = 1, keep_marks: bool = True) -> ShardLog:
        """The same store opened again: a higher epoch, perhaps a new lineage, perhaps without its marks."""
        other = ShardLog(
            msgspec.structs.replace(
                self.identity, epoch=self.identity.epoch + epoch, lineage=lineage or self.identity.lineage
            )
        )
        other.entries, other.objects = [*self.entries], {**self.objects}
        other._floor, other._last, other._last_of = self._floor, self._last, {**self._last_of}
        other._befores = {**self._befores}
        other.marks = {**self.marks} if keep_marks else {}
        return other

    def _next_revision(self) -> int:
        self._last = max(self._last + 1, time.time_ns() // 1000)
        return self._last

    def _append(self, operation: Operation, image: Entry) -> Entry:
        before = self.objects.get(image.key)
        if before:
            self._befores[image.revision] = before.value
        of_type = (image.key.type, image.key.cluster)
        previous = self._last_of.get(of_type, 0)
        entry = msgspec.structs.replace(image, operation=int(operation), previous_of_type=previous)
        self._last_of[of_type] = entry.revision
        self.entries.append(entry)
        for waiter in tuple(self._waiters):
            if not waiter.done():
                waiter.set_result(None)
        return entry

    # --- the protocol ------------------------------------------------------------------------------------

    def floor(self) -> int:
        return self._floor

    def last(self) -> int:
        return self._last

    def tail(self, revision: int, limit: int) -> Sequence[Entry]:
        if revision < self._floor:
            raise RuntimeError("compacted")
        start = bisect.bisect_right(self.entries, revision, key=lambda entry: entry.revision)
        return self.entries[start : start + limit]

    def holds(self, revision: int) -> bool:
        return any(entry.revision == revision for entry in self.entries)

    def backlog(self, revision: int, limit: int) -> int:
        start = bisect.bisect_right(self.entries, revision, key=lambda entry: entry.revision)
        return min(limit, len(self.entries) - start)

    def before(self, entry: SourceEntry) -> bytes | None:
        return self._befores.get(entry.revision)

    def next_commit(self) -> asyncio.Future[None]:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        waiter.add_done_callback(self._waiters.discard)
        return waiter

    def types(self) -> Sequence[ResourceType]:
        return sorted({key.type for key in self.objects})

    def standing(self, type: ResourceType, after: ObjectKey | None, limit: int) -> Sequence[Entry]:
        keys = sorted(key for key in self.objects if key.type == type and (after is None or key > after))
        return [
            msgspec.structs.replace(self.objects[key], operation=1, previous=0, previous_of_type=0)
            for key in keys[:limit]
        ]

    def get_mark(self, name: str) -> bytes | None:
        return self.marks.get(name)

    def set_mark(self, name: str, value: bytes) -> None:
        self.marks[name] = value

    def set_published(self, revision: int) -> None:
        self.published = revision
