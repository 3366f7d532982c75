"""Readiness of the cache server: whether its rows were complete once.

`process` uses it for readiness. `content` checks it before it serves rows: clients would take missing objects for
deleted ones. Invariant: once complete, it stays so. After a restart, or while shards or NATS are down, the stored rows
are served, and metrics give their age.
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
    """A store with marks."""

    def get_mark(self, name: str) -> bytes | None: ...

    def set_mark(self, name: str, value: bytes) -> None: ...


class ShardProgress(Protocol):
    """Progress of the streams; `replication.follower.Follower` is one."""

    @property
    def consumers(self) -> Collection[str]:
        """The followed shards."""

    def behind_s(self) -> float: ...


class Readiness:
    """Checks readiness on each probe and request, until it is complete."""

    def __init__(self, store: FollowedShards, follower: ShardProgress, manager: Manager) -> None:
        self._store, self._follower, self._manager = store, follower, manager
        self._complete = store.get_mark(MARK) is not None

    def check(self) -> str | None:
        """Return None once the rows were complete, else the reason."""
        if self._complete:
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
        self._complete = True
        return None


def _shards(replicas: ReplicaView) -> set[str] | None:
    """Return the shards of the site; None before root's objects are replicated."""
    types = learn_root_types(replicas)
    if types is None:
        return None
    return {key.name for key, _ in each_revision(replicas, Scope(types.shards, ROOT))} or None
