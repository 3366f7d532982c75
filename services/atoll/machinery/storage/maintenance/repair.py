"""Repair of a damaged store: what follows from objects and log is written anew, what is damaged itself is set aside.

`atoll fsck --repair` calls it for a stopped shard. It works on a copy, which takes the store's place once `fsck` finds
nothing in it; the store as it was stays beside it. An object that cannot be read goes into a file, as it was found, and
out of the store: no older version takes its place. Where objects, versions or log were damaged, the log is dropped and
every revision so far is void, so that watches, streams and replicas begin anew. Invariant: nothing is invented, and
what is left out is in the file.
"""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from google_crc32c import value as crc32c

from atoll.machinery.meta.objects import HOLE_SIZE
from atoll.machinery.storage.contract import CorruptRecord, Flag
from atoll.machinery.storage.encoding import keys, object_facts
from atoll.machinery.storage.encoding.rows import Version, covered, pack_version
from atoll.machinery.storage.environment import filesystem
from atoll.machinery.storage.environment.databases import Environment
from atoll.machinery.storage.environment.opening import move_in, new_directory, open_for_writing
from atoll.machinery.storage.maintenance.fsck import Problem, fsck
from atoll.machinery.storage.maintenance.offline import begin_lineage, keep_replaced
from atoll.machinery.storage.maintenance.rebuild import Rebuild, records_of
from atoll.machinery.storage.options import StoreOptions
from atoll.machinery.storage.reading.records import Records

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Txn

#: Databases that follow from the others, as `fsck` names them.
_OF_OTHERS = ("replicas", "routes", "replica_counters", "replica_labels")
_DERIVED = frozenset({"clusters", "owners", "labels", "limits", "totals", *_OF_OTHERS})
_LOG_BYTES = b"log_bytes".hex()
_KEPT_FLAGS = Flag.SEALED | Flag.EXPIRES


class NotRepaired(Exception):
    """Problems are left; the store is as it was."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(f"{len(problems)} problems cannot be repaired; the first: {problems[0].what}")


class DamagedObject(msgspec.Struct, frozen=True):
    """An object that was set aside: its key in words, why, and its bytes as stored in base64 ("": it was missing)."""

    cluster: str
    group: str
    resource: str
    namespace: str
    name: str
    why: str
    stored: str


class Repaired(msgspec.Struct, frozen=True):
    """How many problems there were, the objects set aside, and whether the log was dropped."""

    problems: int
    damaged: tuple[DamagedObject, ...]
    log_dropped: bool
    replaced: Path


def repair(options: StoreOptions, now_us: int) -> Repaired | None:
    """Repair a store; None: it is sound, and was not changed.

    Raises StoreInUse, NotRepaired, KeyFileInvalid, and whatever damaged pages raise; then the store is as it was.
    """
    directory = Path(options.directory)
    owner_fd = filesystem.own(directory)
    try:
        problems = fsck(options)
        if not problems:
            return None
        with new_directory(directory) as fresh:
            shutil.copyfile(directory / filesystem.DATA_FILE, fresh / filesystem.DATA_FILE)
            copy = msgspec.structs.replace(options, directory=str(fresh))
            damaged, dropped = _repair_copy(copy, problems, now_us)
            left = fsck(copy)
            if left:
                raise NotRepaired(left)
            if damaged:
                _set_aside(directory, damaged, now_us)
            replaced = keep_replaced(directory)
            move_in(fresh, directory)
        return Repaired(len(problems), tuple(damaged), dropped, replaced)
    finally:
        os.close(owner_fd)


def _repair_copy(copy: StoreOptions, problems: list[Problem], now_us: int) -> tuple[list[DamagedObject], bool]:
    dropped = any(each.where not in _DERIVED and each.key != _LOG_BYTES for each in problems)
    with closing(open_for_writing(copy, now_us)) as environment, environment.env.begin(write=True) as txn:
        records = records_of(environment, copy, txn)
        damage = Damage(records, copy, txn)
        if any(each.where in _OF_OTHERS for each in problems):
            damage.forget_others()
        damaged = list(damage.remove()) if dropped else []
        if dropped:
            damage.drop_log(now_us)
        Rebuild(records, copy, txn).run()
    return damaged, dropped


class Damage:
    """The damage of objects, versions and log of a store, taken out in one transaction."""

    def __init__(self, records: Records, options: StoreOptions, txn: Txn) -> None:
        self._records, self._options, self._txn = records, options, txn
        self._environment: Environment = records.environment

    def remove(self) -> Iterator[DamagedObject]:
        """Yield each damaged object after it was taken out; correct the flags of the others."""
        environment = self._environment
        with self._txn.cursor(environment.objects) as cursor:
            found = {bytes(key) for key in cursor.iternext(values=False)}
        for key in sorted(found | self._living()):
            live = self._records.live_version(self._txn, key)
            stored = self._txn.get(key, db=environment.objects)
            why = self._problem(key, None if stored is None else bytes(stored), live)
            if why:
                self._txn.delete(key, db=environment.objects)
                yield self._described(key, why, stored)

    def _living(self) -> set[bytes]:
        """Return the keys that have versions."""
        with self._txn.cursor(self._environment.versions) as cursor:
            return {bytes(row[:-8]) for row in cursor.iternext(values=False)}

    def _problem(self, key: bytes, stored: bytes | None, live: tuple[int, Version] | None) -> str:
        """Return what is wrong with an object, "" for a sound one and for one that is deleted."""
        if stored is None:
            return "the object is missing" if live is not None else ""
        if live is None:
            return "it has no version"
        revision, version = live
        if crc32c(covered(stored, version)) != version.crc:
            return "checksum mismatch"
        if not version.sealed and stored[version.hole : version.hole + HOLE_SIZE] != b"%016d" % revision:
            return "its revision is not that of its version"
        try:
            plain = self._records.plain(self._txn, key, stored, version)
            facts = object_facts.facts(plain, self._options.system_label_prefixes)
        except (CorruptRecord, msgspec.DecodeError, KeyError):
            return "it cannot be read"
        flags = facts.flags | version.flags & _KEPT_FLAGS
        row = pack_version(Version(version.crc, flags, version.hole))
        self._txn.put(key + keys.revision_key(revision), row, db=self._environment.versions)
        return ""

    def _described(self, key: bytes, why: str, stored: bytes | None) -> DamagedObject:
        where = self._records.object_key(self._txn, key)
        text = base64.b64encode(stored).decode() if stored is not None else ""
        return DamagedObject(
            where.cluster, where.type.group, where.type.resource, where.namespace, where.name, why, text
        )

    def drop_log(self, now_us: int) -> None:
        """Drop the log and all versions but those that stand; make every revision so far void."""
        environment, txn = self._environment, self._txn
        standing, ends = {}, [void.first_new - 1 for void in environment.voids(txn)]
        with txn.cursor(environment.objects) as cursor:
            for key in cursor.iternext(values=False):
                live = self._records.live_version(txn, bytes(key))
                assert live is not None, "an object without a version was removed"
                standing[bytes(key) + keys.revision_key(live[0])] = pack_version(live[1])
                ends.append(live[0])
        for db in (environment.log, environment.versions):
            txn.drop(db, delete=False)
        for row in sorted(standing):
            txn.put(row, standing[row], db=environment.versions)
        now = max(environment.last(txn) + 1, *(end + 1 for end in ends), now_us)
        environment.put_meta(txn, "last", now)
        environment.put_meta(txn, "compacted", now)
        begin_lineage(environment, txn, 0, now)
        if environment.get_meta(txn, "published", -1) >= 0:
            environment.put_meta(txn, "published", now)

    def forget_others(self) -> None:
        """Drop the rows of other shards with the marks of their streams: they are read again."""
        environment, txn = self._environment, self._txn
        for name in _OF_OTHERS:
            txn.drop(environment.handles[name], delete=False)
        with txn.cursor(environment.marks) as cursor:
            marks = [bytes(key) for key in cursor.iternext(values=False) if key.startswith(b"replication.")]
        for mark in marks:
            txn.delete(mark, db=environment.marks)


def _set_aside(directory: Path, damaged: list[DamagedObject], now_us: int) -> None:
    """Write the damaged objects durably, one JSON line each (0600)."""
    fd = os.open(directory / f"damaged-{now_us}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.writelines(msgspec.json.encode(each) + b"\n" for each in damaged)
        file.flush()
        os.fsync(file.fileno())
    filesystem.sync_directory(directory)
