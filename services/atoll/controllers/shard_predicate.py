"""Filter Shard log entries that change only load and heartbeat, which every shard writes every few seconds.

Controllers that list all keys when a Shard changes call `has_changed` first. The last state of each Shard is kept as a
digest; a new process accepts one entry for each Shard, when it lists all its keys anyway. Invariant: a change of
address, labels, annotations or existence always passes.
"""

from __future__ import annotations

from atoll.machinery.kcp.sharding.shards import digest
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import decode
from atoll.machinery.storage.contract import LogEntry, Operation

MAX_SHARDS = 4096


class ShardChangePredicate:
    """The filter of one controller."""

    def __init__(self) -> None:
        self._digests: LruCache[ObjectKey, bytes] = LruCache(MAX_SHARDS)

    def has_changed(self, entry: LogEntry) -> bool:
        """Return True for the first entry, for a deletion, and for a change outside of status."""
        if entry.operation is Operation.DELETED:
            self._digests.drop(entry.key)
            return True
        found = digest(decode(entry.value))
        if self._digests.get(entry.key) == found:
            return False
        self._digests.put(entry.key, found)
        return True
