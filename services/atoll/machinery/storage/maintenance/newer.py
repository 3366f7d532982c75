"""What a store had that another, which takes its place, has not: the objects that were written after a revision.

`restore` calls it for the store that it replaces. Invariant: it reads in one transaction and changes nothing; an object
whose deletion was compacted is not named any more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from atoll.machinery.storage.contract import CorruptRecord, Flag
from atoll.machinery.storage.encoding import keys
from atoll.machinery.storage.encoding.rows import Version
from atoll.machinery.storage.environment.databases import Environment
from atoll.machinery.storage.environment.opening import open_for_reading
from atoll.machinery.storage.maintenance.rebuild import last_versions, records_of
from atoll.machinery.storage.options import StoreOptions
from atoll.machinery.storage.reading.records import Records

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Txn


class NewerObject(msgspec.Struct, frozen=True):
    """An object, and the revision that wrote or deleted it last. No value: Secrets are among them."""

    cluster: str
    group: str
    resource: str
    namespace: str
    name: str
    revision: int
    deleted: bool


def write_newer(options: StoreOptions, revision: int, path: Path) -> int:
    """Write the objects of a store that are newer than `revision`, one JSON line each (0600); return their number.

    Raises what damaged pages raise, KeyFileInvalid, UnknownFormat or OSError; then there may be a part of the file.
    """
    count = 0
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "wb") as file, closing(open_for_reading(options)) as environment:
        with environment.reading() as txn:
            for each in _newer(environment, options, txn, revision):
                file.write(msgspec.json.encode(each) + b"\n")
                count += 1
        file.flush()
        os.fsync(file.fileno())
    return count


def _newer(environment: Environment, options: StoreOptions, txn: Txn, revision: int) -> Iterator[NewerObject]:
    """Yield what was written after a revision, in the order of keys: type, cluster, namespace, name."""
    records = records_of(environment, options, txn)
    for key, last, version in last_versions(environment, txn):
        if last > revision:
            yield _described(records, txn, key, last, version)


def _described(records: Records, txn: Txn, key: bytes, revision: int, version: Version) -> NewerObject:
    deleted = bool(version.flags & Flag.DELETED)
    where = records.object_key(txn, key, _value(records, txn, key, version))
    names = (where.cluster, where.type.group, where.type.resource, where.namespace, where.name)
    return NewerObject(*names, revision, deleted)


def _value(records: Records, txn: Txn, key: bytes, version: Version) -> bytes:
    """The value of an object whose key holds a hash of its name in place of the name; empty if that cannot be read."""
    stored = txn.get(key, db=records.environment.objects) if keys.split(key).hashed else None
    try:
        return records.plain(txn, key, bytes(stored), version) if stored is not None else b""
    except CorruptRecord:
        return b""
