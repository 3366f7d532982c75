"""An open LMDB environment: its databases, and the facts in `meta` (identity, last revision, voids).

`opening` makes it; every part of the package reads and writes through it. Invariant: a write transaction changes `meta`
together with the rows that it describes.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lmdb
import msgspec

from atoll.machinery.meta.names import ResourceType
from atoll.machinery.storage.contract import RevisionCompacted, StoreIdentity
from atoll.machinery.storage.environment.recent_rows import RecentRows
from atoll.machinery.storage.environment.type_table import TypeTable

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Database, Txn


FORMAT_VERSION = 1
MAX_DATABASES = 32
_DATABASES = ("meta", "types", "objects", "log", "versions", "clusters", "owners", "labels", "expiry", "marks")
#: Rows of other shards. A file that no newer version opened for writing lacks them.
_REPLICA_DATABASES = ("replicas", "routes", "replica_counters", "replica_labels")
#: Limits of ResourceQuotas and of clusters; lacking likewise.
_LIMIT_DATABASES = ("limits", "totals")
_LATER_DATABASES = (*_REPLICA_DATABASES, *_LIMIT_DATABASES)


class Void(msgspec.Struct, frozen=True, array_like=True):
    """Revisions strictly between both, which may have been published before a restore, and mean nothing since."""

    restored_to: int
    first_new: int


class Meta(msgspec.Struct, frozen=True):
    """The values of `meta` in one transaction. `published` is -1 in a store that is never published."""

    last: int = 0
    compacted: int = 0
    published: int = -1
    log_bytes: int = 0
    voids: tuple[Void, ...] = ()


class ReplicaDatabases(msgspec.Struct, frozen=True):
    """Databases of rows of other shards: rows, routes of clusters, counters, system labels."""

    rows: Database
    routes: Database
    counters: Database
    labels: Database


class LimitDatabases(msgspec.Struct, frozen=True):
    """Databases of limits: a row a quota and kind, and a row a cluster that is limited or counted."""

    limits: Database
    totals: Database


class Environment:
    """An open LMDB environment with its databases. One a process; must not cross a fork."""

    def __init__(self, env: lmdb.Environment, directory: Path, owner_fd: int = -1) -> None:
        self.env, self.directory = env, directory
        self._owner_fd = owner_fd
        handles = _open_all(env, owner_fd >= 0)
        self.meta, self.types = handles["meta"], handles["types"]
        self.objects, self.log, self.versions = handles["objects"], handles["log"], handles["versions"]
        self.clusters, self.owners, self.labels = handles["clusters"], handles["owners"], handles["labels"]
        self.expiry, self.marks = handles["expiry"], handles["marks"]
        #: None only for a reader, until a writer of this version opens the file.
        self.replicas = _replica_databases(handles)
        self.limits = _limit_databases(handles)
        self.handles = handles
        self.type_table = TypeTable(self.types)
        self.recent = RecentRows()

    def reading(self) -> Txn:
        """Begin a read transaction: a context manager, never kept across an await."""
        return self.env.begin()

    def get_meta(self, txn: Txn, name: str, default: Any) -> Any:
        """Return a value of `meta`, `default` if the name is absent."""
        raw = txn.get(name.encode(), db=self.meta)
        return default if raw is None else msgspec.msgpack.decode(raw)

    def put_meta(self, txn: Txn, name: str, value: Any) -> None:
        txn.put(name.encode(), msgspec.msgpack.encode(value), db=self.meta)

    def last(self, txn: Txn) -> int:
        """Return the last revision committed, 0 in an empty store."""
        value: int = self.get_meta(txn, "last", 0)
        return value

    def note_sealing_key(self, txn: Txn, number: int) -> None:
        """Note that all that this process writes from here on is sealed with a key."""
        self.put_meta(txn, "sealing", (self.get_meta(txn, "epoch", 0), number))

    def sealing_key(self, txn: Txn) -> int:
        """Return the key that seals all that the process that has the file open writes; 0 if it did not note one."""
        epoch, number = self.get_meta(txn, "sealing", (0, 0))
        return int(number) if epoch == self.get_meta(txn, "epoch", 0) else 0

    def applied(self, txn: Txn) -> int:
        """Return the apply count of replicas and routes."""
        value: int = self.get_meta(txn, "applied", 0)
        return value

    def compacted(self, txn: Txn) -> int:
        """Return the highest revision that compaction dropped from the log, 0 if none was."""
        raw = txn.get(b"compacted", db=self.meta)
        value: int = msgspec.msgpack.decode(raw) if raw is not None else 0
        return value

    def note_commit(self, txn: Txn, last: int | None, log_bytes: int) -> None:
        """Set the last revision if there is a new one, and add to the size of the log."""
        raw, encode = txn.get(b"log_bytes", db=self.meta), msgspec.msgpack.encode
        logged: int = msgspec.msgpack.decode(raw) if raw is not None else 0
        if last is not None:
            txn.put(b"last", encode(last), db=self.meta)
        txn.put(b"log_bytes", encode(max(0, logged + log_bytes)), db=self.meta)

    def voids(self, txn: Txn) -> tuple[Void, ...]:
        return tuple(Void(*pair) for pair in self.get_meta(txn, "voids", ()))

    def all_meta(self, txn: Txn) -> Meta:
        return Meta(
            last=self.last(txn),
            compacted=self.compacted(txn),
            published=self.get_meta(txn, "published", -1),
            log_bytes=self.get_meta(txn, "log_bytes", 0),
            voids=self.voids(txn),
        )

    def sealed_types(self, txn: Txn) -> list[ResourceType]:
        """Return the types ever configured to be sealed: any of their objects may be."""
        return [ResourceType(*words) for words in self.get_meta(txn, "sealed", ())]

    def require_not_void(self, txn: Txn, revision: int) -> None:
        """Raise RevisionCompacted for a revision in a void."""
        for void in self.voids(txn):
            if void.restored_to < revision < void.first_new:
                raise RevisionCompacted(revision, void.first_new)

    def has_limits(self, txn: Txn) -> bool:
        """Return whether any cluster has a row of limits."""
        return self.limits is not None and txn.stat(self.limits.totals)["entries"] > 0

    def identity(self) -> StoreIdentity:
        """Return the identity of the store, as its last writer left it."""
        with self.reading() as txn:
            return StoreIdentity(
                shard=self.get_meta(txn, "shard", ""),
                shard_uid=self.get_meta(txn, "shard_uid", ""),
                lineage=self.get_meta(txn, "lineage", ""),
                epoch=self.get_meta(txn, "epoch", 0),
            )

    def close(self) -> None:
        self.env.close()
        if self._owner_fd >= 0:
            os.close(self._owner_fd)
            self._owner_fd = -1


def _open_all(env: lmdb.Environment, create: bool) -> dict[str, Database]:
    """Open every database; create them in one transaction, so that a new file costs one commit."""
    if create:
        with env.begin(write=True) as txn:
            return {name: env.open_db(name.encode(), txn=txn) for name in (*_DATABASES, *_LATER_DATABASES)}
    handles = {name: env.open_db(name.encode(), create=False) for name in _DATABASES}
    with suppress(lmdb.NotFoundError):
        for name in _LATER_DATABASES:
            handles[name] = env.open_db(name.encode(), create=False)
    return handles


def _replica_databases(handles: dict[str, Database]) -> ReplicaDatabases | None:
    found = [handles[name] for name in _REPLICA_DATABASES if name in handles]
    return ReplicaDatabases(*found) if len(found) == len(_REPLICA_DATABASES) else None


def _limit_databases(handles: dict[str, Database]) -> LimitDatabases | None:
    found = [handles[name] for name in _LIMIT_DATABASES if name in handles]
    return LimitDatabases(*found) if len(found) == len(_LIMIT_DATABASES) else None
