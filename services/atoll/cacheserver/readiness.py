"""Whether the rows were whole once: before that, what is missing would pass for what was deleted.

`process` asks for readiness and `content` before it shows anything. Once whole, for ever: after a restart, or while
shards or NATS are away, what is on disk is served as it was, and metrics say how old it is.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from atoll.machinery.control.manager import Manager
from atoll.machinery.meta.names import ROOT
from atoll.machinery.storage.contract import ReplicaView, Scope, Store
from atoll.machinery.storage.pages import each_revision
from atoll.replication.root_types import learn_root_types

MARK = "cache-complete"


class FollowedShards(Store, Protocol):
    """A store that keeps marks."""

    def get_mark(self, name: str) -> bytes | None: ...

    def set_mark(self, name: str, value: bytes) -> None: ...


class ShardProgress(Protocol):
    """What is known of the streams; `replication.follower.Follower` is one."""

    @property
    def consumers(self) -> Collection[str]:
        """The shards that are followed."""

    def behind_s(self) -> float: ...


class Readiness:
    """Asked, it looks; it is asked by probes and requests, and by nobody else."""

    def __init__(self, store: FollowedShards, follower: ShardProgress, manager: Manager) -> None:
        self._store, self._follower, self._manager = store, follower, manager
        self._known = store.get_mark(MARK) is not None

    def check(self) -> str | None:
        """None once the rows were whole; else what is awaited."""
        if self._known:
            return None
        with self._store.snapshot() as snapshot:
            missing = _shards(snapshot.replicas)
        if missing is None or not missing <= set(self._follower.consumers):
            return "not every shard is followed yet"
        if self._follower.behind_s():
            return "the first reading of the streams is not complete"
        if not self._manager.idle():
            return "the rows are being written"
        self._store.set_mark(MARK, b"1")
        self._known = True
        return None


def _shards(replicas: ReplicaView) -> set[str] | None:
    """The shards of the site; None while root has not told."""
    types = learn_root_types(replicas)
    if types is None:
        return None
    return {key.name for key, _ in each_revision(replicas, Scope(types.shards, ROOT))} or None
