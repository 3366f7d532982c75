"""Opening the LMDB environment of a shard: databases, format version, identity, voids.

`lmdb_store` opens it for writing (one process at a time), `remote_store` for reading beside it. Full sync at
each commit, always: in 2,400 simulated power cuts the default mode lost nothing and every other mode lost
acknowledged writes. Invariant: a file that is not ours, or of a format we do not know, is left as it was.
"""

from __future__ import annotations

import os
import secrets
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lmdb
import msgspec

from atoll.machinery.meta.names import ResourceType
from atoll.machinery.storage.contract import RevisionCompacted, StoreIdentity
from atoll.machinery.storage.environment import filesystem
from atoll.machinery.storage.environment.type_table import TypeTable
from atoll.machinery.storage.options import StoreOptions

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Database, Txn


FORMAT_VERSION = 1
_MAX_DATABASES = 32
_MAX_READERS = 512
_DATABASES = ("meta", "types", "objects", "log", "versions", "clusters", "owners", "labels", "expiry", "marks")
#: What other shards published. A file that no newer version opened for writing has none of them.
_REPLICA_DATABASES = ("replicas", "routes", "replica_counters", "replica_labels")


class UnknownFormat(Exception):
    """The directory holds a file that this version does not read. It was not touched."""


class WrongShard(Exception):
    """The directory belongs to another shard."""


class Void(msgspec.Struct, frozen=True, array_like=True):
    """Revisions strictly between both were published by a history that a restore took back."""

    restored_to: int
    first_new: int


class Meta(msgspec.Struct, frozen=True):
    """What `meta` says at the time of one transaction. `published` is -1 while nobody publishes."""

    last: int = 0
    compacted: int = 0
    published: int = -1
    log_bytes: int = 0
    voids: tuple[Void, ...] = ()


class ReplicaDatabases(msgspec.Struct, frozen=True):
    """Handles of what other shards published: rows, clusters' routes, counters, system labels."""

    rows: Database
    routes: Database
    counters: Database
    labels: Database


class Environment:
    """An open LMDB environment with its databases. One a process; not across fork."""

    def __init__(self, env: lmdb.Environment, directory: Path, owner_fd: int = -1) -> None:
        self.env, self.directory = env, directory
        self._owner_fd = owner_fd
        handles = _open_all(env, owner_fd >= 0)
        self.meta, self.types = handles["meta"], handles["types"]
        self.objects, self.log, self.versions = handles["objects"], handles["log"], handles["versions"]
        self.clusters, self.owners, self.labels = handles["clusters"], handles["owners"], handles["labels"]
        self.expiry, self.marks = handles["expiry"], handles["marks"]
        #: None only in a reader's hands, and only until a writer opens the file.
        self.replicas = _replica_databases(handles)
        self.handles = handles
        self.type_table = TypeTable(self.types)

    def reading(self) -> Txn:
        """A read transaction, to be used as a context manager and never across an await."""
        return self.env.begin()

    def get_meta(self, txn: Txn, name: str, default: Any) -> Any:
        """A value of `meta`, `default` where the name is absent."""
        raw = txn.get(name.encode(), db=self.meta)
        return default if raw is None else msgspec.msgpack.decode(raw)

    def put_meta(self, txn: Txn, name: str, value: Any) -> None:
        txn.put(name.encode(), msgspec.msgpack.encode(value), db=self.meta)

    def last(self, txn: Txn) -> int:
        """The last revision committed, 0 in an empty store."""
        value: int = self.get_meta(txn, "last", 0)
        return value

    def applied(self, txn: Txn) -> int:
        """How many changes of replicas and routes there were, ever."""
        value: int = self.get_meta(txn, "applied", 0)
        return value

    def compacted(self, txn: Txn) -> int:
        """The highest revision that compaction dropped from the log, 0 if none was."""
        value: int = self.get_meta(txn, "compacted", 0)
        return value

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
        """Types that were ever configured to be sealed, so that any of their objects may be."""
        return [ResourceType(*words) for words in self.get_meta(txn, "sealed", ())]

    def require_not_void(self, txn: Txn, revision: int) -> None:
        """Raise RevisionCompacted for a revision that a restore took back."""
        for void in self.voids(txn):
            if void.restored_to < revision < void.first_new:
                raise RevisionCompacted(revision, void.first_new)

    def identity(self) -> StoreIdentity:
        """Who the store is, as the writer that opened it last left it."""
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
    """Every database there is; made in one transaction, so that a new file costs one commit."""
    if create:
        with env.begin(write=True) as txn:
            return {name: env.open_db(name.encode(), txn=txn) for name in (*_DATABASES, *_REPLICA_DATABASES)}
    handles = {name: env.open_db(name.encode(), create=False) for name in _DATABASES}
    with suppress(lmdb.NotFoundError):
        for name in _REPLICA_DATABASES:
            handles[name] = env.open_db(name.encode(), create=False)
    return handles


def _replica_databases(handles: dict[str, Database]) -> ReplicaDatabases | None:
    found = [handles[name] for name in _REPLICA_DATABASES if name in handles]
    return ReplicaDatabases(*found) if len(found) == len(_REPLICA_DATABASES) else None


def open_for_writing(options: StoreOptions, now_us: int) -> Environment:
    """Open or create the store of a shard and raise its epoch.

    Raises UnsupportedFileSystem, StoreInUse, UnknownFormat, WrongShard; then nothing was changed.
    """
    directory = Path(options.directory)
    if not options.allow_any_filesystem:
        filesystem.require_local(directory)
    if _is_foreign(directory):
        _require_known(directory, options)
    filesystem.prepare_directory(directory)
    owner_fd = filesystem.own(directory)
    try:
        if (directory / filesystem.DATA_FILE).exists():
            _require_known(directory, options)
        else:
            _create(directory, options)
        opened = _with_databases(_open(directory, options), directory, owner_fd)
    except BaseException:
        os.close(owner_fd)
        raise
    try:
        _begin(opened, options, now_us)
        opened.env.reader_check()
    except BaseException:
        opened.close()
        raise
    return opened


def open_for_reading(options: StoreOptions) -> Environment:
    """Open the store that another process writes. Raises UnknownFormat, or lmdb.Error if there is none."""
    directory = Path(options.directory)
    opened = _with_databases(_open(directory, options, readonly=True), directory)
    with opened.reading() as txn:
        found = opened.get_meta(txn, "format", None)
    if found != FORMAT_VERSION:
        opened.close()
        raise UnknownFormat(str(directory))
    return opened


def mark_restored(options: StoreOptions, now_us: int) -> None:
    """Give a store that lost acknowledged history a new lineage, and void the revisions it may have
    published.
    """
    opened = open_for_writing(options, now_us)
    try:
        with opened.env.begin(write=True) as txn:
            last = opened.last(txn)
            voids = [*opened.voids(txn), Void(last, max(last + 1, now_us))]
            opened.put_meta(txn, "voids", voids)
            opened.put_meta(txn, "lineage", secrets.token_hex(8))
    finally:
        opened.close()


def compact_file(options: StoreOptions, now_us: int) -> None:
    """Rewrite the file without its free pages (they may hold what was sealed since), durably. Offline."""
    opened = open_for_writing(options, now_us)
    try:
        with _new_directory(opened.directory) as fresh:
            opened.env.copy(str(fresh), compact=True)
            opened.env.close()
            _move_in(fresh, opened.directory)
    finally:
        opened.close()


def _open(directory: Path, options: StoreOptions, *, readonly: bool = False, lock: bool = True) -> lmdb.Environment:
    return lmdb.open(
        str(directory),
        map_size=options.map_size_bytes,
        max_dbs=_MAX_DATABASES,
        max_readers=_MAX_READERS,
        mode=0o600,
        readonly=readonly,
        create=not readonly,
        lock=lock,
        max_spare_txns=16,
    )


def _with_databases(env: lmdb.Environment, directory: Path, owner_fd: int = -1) -> Environment:
    """The open environment with its databases. One that lacks any is closed again, so that nothing is held."""
    try:
        return Environment(env, directory, owner_fd)
    except BaseException:
        env.close()
        raise


def _require_known(directory: Path, options: StoreOptions) -> None:
    try:
        env = _open(directory, options, readonly=True, lock=False)
    except lmdb.Error as error:
        raise UnknownFormat(f"{directory / filesystem.DATA_FILE} is damaged or no store: {error}") from error
    try:
        with env.begin() as txn:
            meta = env.open_db(b"meta", txn=txn, create=False)
            found = msgspec.msgpack.decode(txn.get(b"format", db=meta) or b"\xc0")
            shard = msgspec.msgpack.decode(txn.get(b"shard", db=meta) or b"\xc0")
    except (lmdb.Error, msgspec.DecodeError) as error:
        raise UnknownFormat(f"{directory / filesystem.DATA_FILE} is no store of this system: {error}") from error
    finally:
        env.close()
    if found != FORMAT_VERSION:
        raise UnknownFormat(f"{directory} has format {found}, this version reads {FORMAT_VERSION}")
    if shard != options.shard:
        raise WrongShard(f"{directory} belongs to shard {shard!r}, not {options.shard!r}")


def _is_foreign(directory: Path) -> bool:
    """Whether no process of ours ever opened what is there: then not even a lock file may be left in it."""
    return (directory / filesystem.DATA_FILE).exists() and not (directory / filesystem.OWNER_FILE).exists()


def _create(directory: Path, options: StoreOptions) -> None:
    """Build the file under another name, so that a file under the right one is always whole."""
    with _new_directory(directory) as fresh:
        env = _open(fresh, options)
        meta = env.open_db(b"meta")
        facts = {
            "format": FORMAT_VERSION,
            "shard": options.shard,
            "shard_uid": str(uuid.uuid4()),
            "lineage": secrets.token_hex(8),
        }
        with env.begin(write=True, db=meta) as txn:
            for name, value in facts.items():
                txn.put(name.encode(), msgspec.msgpack.encode(value))
        env.close()
        _move_in(fresh, directory)


@contextmanager
def _new_directory(directory: Path) -> Iterator[Path]:
    fresh = directory / "new"
    _remove(fresh)
    fresh.mkdir(mode=0o700)
    try:
        yield fresh
    finally:
        _remove(fresh)


def _move_in(fresh: Path, directory: Path) -> None:
    data = fresh / filesystem.DATA_FILE
    data.chmod(0o600)
    fd = os.open(data, os.O_RDWR)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    data.replace(directory / filesystem.DATA_FILE)
    filesystem.sync_directory(directory)


def _remove(fresh: Path) -> None:
    if fresh.exists():
        for path in fresh.iterdir():
            path.unlink()
        fresh.rmdir()


def _begin(opened: Environment, options: StoreOptions, now_us: int) -> None:
    """What every opening for writing leaves behind.

    A restored file must outrank what it published before, so the epoch follows the clock, not only itself.
    """
    with opened.env.begin(write=True) as txn:
        epoch: int = opened.get_meta(txn, "epoch", 0)
        opened.put_meta(txn, "epoch", max(epoch + 1, now_us // 1_000_000))
        sealed = sorted(set(opened.sealed_types(txn)).union(options.sealed_types))
        opened.put_meta(txn, "sealed", [(type.group, type.resource, type.identity) for type in sealed])
