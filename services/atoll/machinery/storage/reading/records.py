"""Single records: the live version of an object, the value that a revision wrote, stored bytes as clients get them.

Snapshots, lists, cursors, the log reader and fsck read through it, in a transaction of theirs; results outlive the
transaction. Invariant: a record that fails its checksum or cannot be unsealed raises CorruptRecord with an alarm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import structlog
from google_crc32c import value as crc32c

from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import HOLE_SIZE, splice
from atoll.machinery.storage.contract import CorruptRecord, Flag
from atoll.machinery.storage.encoding import keys, object_facts
from atoll.machinery.storage.encoding.rows import Entry, Version, unpack_entry, unpack_version, unpack_version_row
from atoll.machinery.storage.environment.databases import Environment
from atoll.machinery.storage.sealing import Sealer, SealingError

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Txn


Alarm = Callable[..., Any]
_DELETED, _SEALED = Flag.DELETED.value, Flag.SEALED.value
_ZEROES = b"0" * HOLE_SIZE


def log_alarm(event: str, **facts: Any) -> None:
    """Log an alarm as an error; the default of a store."""
    structlog.get_logger().error(event, **facts)


class Records:
    """Reads records of one environment. Stateless and thread safe."""

    def __init__(
        self, environment: Environment, sealer: Sealer | None, alarm: Alarm, sealed_types: frozenset[ResourceType]
    ) -> None:
        self.environment = environment
        self.sealer = sealer
        #: Types whose objects may be sealed: those configured now or ever before.
        self.sealed_types = sealed_types
        #: Objects that a logical cluster may hold by the shard's setting; 0: any number.
        self.total_object_limit = 0
        self._alarm = alarm

    def live_version(self, txn: Txn, key: bytes) -> tuple[int, Version] | None:
        """Return revision and row of an object's last version; None for one that is deleted or was never written."""
        with txn.cursor(self.environment.versions) as cursor:
            found = cursor.prev() if cursor.set_range(key + keys.BEHIND) else cursor.last()
            if not found:
                return None
            row = bytes(cursor.key())
            if len(row) != len(key) + 8 or not row.startswith(key):
                return None
            crc, flags, hole = unpack_version_row(cursor.value())
            return None if flags & _DELETED else (int.from_bytes(row[-8:], "big"), Version(crc, flags, hole))

    def entry(self, txn: Txn, revision: int) -> Entry | None:
        """Return one log entry, None if compaction dropped it or the revision does not exist."""
        raw = txn.get(keys.revision_key(revision), db=self.environment.log)
        return None if raw is None else unpack_entry(raw)

    def value_written(self, txn: Txn, key: bytes, revision: int) -> tuple[bytes, Version] | None:
        """Return the value that a revision wrote to a key, as stored, and its row.

        It is the before-image of the key's next entry, or in `objects`. None for a delete, and for a record that is no
        longer retained.
        """
        with txn.cursor(self.environment.versions) as cursor:
            if not cursor.set_key(key + keys.revision_key(revision)):
                return None
            version = unpack_version(cursor.value())
            if version.deleted:
                return None
            row = bytes(cursor.key()) if cursor.next() else b""
        if len(row) == len(key) + 8 and row.startswith(key):
            following = self.entry(txn, keys.revision_of_key(row))
            if following is None or following.before is None or following.before_version is None:
                return None
            return following.before, following.before_version
        value = txn.get(key, db=self.environment.objects)
        return None if value is None else (bytes(value), version)

    def object_key(self, txn: Txn, key: bytes, value: bytes = b"") -> ObjectKey:
        """Return the typed key. `value` (plain) names the object if the key holds only a hash."""
        parts = keys.split(key)
        type = self.environment.type_table.type(txn, parts.type_number)
        if not parts.hashed or not value:
            return ObjectKey(type, parts.cluster, parts.namespace, parts.name)
        namespace, name = object_facts.names(value)
        return ObjectKey(type, parts.cluster, namespace, name)

    def plain(self, txn: Txn, key: bytes, stored: bytes, version: Version) -> bytes:
        """Return stored bytes as JSON: a sealed record with its hole zeroed, any other with its revision."""
        if not version.sealed:
            return stored
        type = self.environment.type_table.type(txn, keys.type_number_of(key))
        try:
            if self.sealer is None:
                raise SealingError("no key file is configured")
            return self.sealer.open(type, key[4:], stored)
        except SealingError as error:
            raise self.corrupt(txn, key, str(error)) from error

    def client_value(self, txn: Txn, key: bytes, stored: bytes, version: Version, revision: int) -> bytes:
        """Return stored bytes as a client gets them, with `revision` in the hole."""
        return splice(self.plain(txn, key, stored, version), version.hole, revision)

    def verify(self, txn: Txn, key: bytes, stored: bytes, version: Version) -> None:
        """Raise CorruptRecord, with an alarm, on a checksum mismatch."""
        # As `covered`, without a call.
        hole = version.hole
        plain = stored if version.flags & _SEALED else b"".join((stored[:hole], _ZEROES, stored[hole + HOLE_SIZE :]))
        if crc32c(plain) != version.crc:
            raise self.corrupt(txn, key, "checksum mismatch")

    def corrupt(self, txn: Txn, key: bytes, reason: str) -> CorruptRecord:
        """Raise the alarm for a damaged record and return its error."""
        named = self.object_key(txn, key)
        self._alarm("record corrupt", type=named.type.group_resource, cluster=named.cluster, reason=reason)
        return CorruptRecord(named, reason)
