"""Whether an entry of a Shard says anything but that the shard lives: load and heartbeat come every few seconds.

Controllers that look at everything when a Shard changes ask `said` first. What a Shard said last is kept as a digest,
one a Shard; a new process hears of each once more, when it lists all its keys anyway. Invariant: a change of address,
labels, annotations or existence is never taken for a sign of life.
"""

from __future__ import annotations

from atoll.machinery.kcp.sharding.shards import digest
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import decode
from atoll.machinery.storage.contract import LogEntry, Operation

MAX_SHARDS = 4096


class ShardChangePredicate:
    """One a controller: it remembers what that controller was told."""

    def __init__(self) -> None:
        self._known: LruCache[ObjectKey, bytes] = LruCache(MAX_SHARDS)

    def said(self, entry: LogEntry) -> bool:
        """True the first time, when a Shard goes, and whenever more than its status changed."""
        if entry.operation is Operation.DELETED:
            self._known.drop(entry.key)
            return True
        found = digest(decode(entry.value))
        if self._known.get(entry.key) == found:
            return False
        self._known.put(entry.key, found)
        return True
