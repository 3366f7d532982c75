"""Resealing of stored objects under the primary key: in place, same revision, no log entry, new checksum.

`atoll rotate` adds a key and calls `LmdbStore.reseal`, or has a running shard call it. Log and streams keep records
under the old key, so it stays in the key file until both have dropped them (`key_use`); a compacting copy then clears
free pages. Invariant: a client reads the same object before and after.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from google_crc32c import value as crc32c

from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.objects import splice
from atoll.machinery.storage.contract import Flag
from atoll.machinery.storage.encoding import keys
from atoll.machinery.storage.encoding.rows import Version, pack_version
from atoll.machinery.storage.environment.type_table import NO_TYPE
from atoll.machinery.storage.reading.records import Records
from atoll.machinery.storage.sealing import Sealer, key_id
from atoll.machinery.storage.writing.submit_transaction import SubmitTransaction
from atoll.machinery.storage.writing.writer import Writer

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Txn

#: The most that a step reads: other writes wait for it.
_STEP_ROWS, _STEP_BYTES = 128, 1 << 20


async def reseal(records: Records, writer: Writer, types: tuple[ResourceType, ...], pause_s: float = 0.0) -> int:
    """Seal every object of these types under the primary key, with pauses between the steps. Return the number of
    changed objects."""
    sealer, changed = records.sealer, 0
    if sealer is None:
        return 0
    await writer.run(partial(_note, records, sealer.primary))
    for type in types:
        after: bytes | None = b""
        while after is not None:
            step = _Step(records, sealer, type, after)
            progress: _Progress = await writer.run(step.run)
            after, changed = progress.after, changed + progress.changed
            await asyncio.sleep(pause_s if after is not None else 0.0)
    return changed


def _note(records: Records, number: int, transaction: SubmitTransaction, txn: Txn) -> None:
    """Tell `key_use` the key: what is sealed with an earlier one is committed before this."""
    records.environment.note_sealing_key(txn, number)


class _Progress(msgspec.Struct, frozen=True):
    """The result of one step: the key to go on behind (None: done), and the number of changed objects."""

    after: bytes | None
    changed: int


class _Step:
    """Reseals some objects of one type, behind a key."""

    def __init__(self, records: Records, sealer: Sealer, type: ResourceType, after: bytes) -> None:
        self._records, self._sealer, self._type, self._after = records, sealer, type, after

    def run(self, transaction: SubmitTransaction, txn: Txn) -> _Progress:
        """Run the step in the writer's transaction."""
        environment = self._records.environment
        number = environment.type_table.number(txn, self._type)
        if number == NO_TYPE:
            return _Progress(None, 0)
        prefix = number.to_bytes(4, "big")
        rows: list[tuple[bytes, bytes]] = []
        size_bytes = 0
        with txn.cursor(environment.objects) as cursor:
            on_row = cursor.set_range(self._after + b"\0" if self._after else prefix)
            while on_row and cursor.key().startswith(prefix):
                if len(rows) >= _STEP_ROWS or size_bytes >= _STEP_BYTES:
                    break
                rows.append((cursor.key(), cursor.value()))
                size_bytes += len(rows[-1][1])
                on_row = cursor.next()
            more = on_row and cursor.key().startswith(prefix)
        changed = sum(self._reseal(transaction, txn, key, stored) for key, stored in rows)
        return _Progress(rows[-1][0] if more else None, changed)

    def _reseal(self, transaction: SubmitTransaction, txn: Txn, key: bytes, stored: bytes) -> bool:
        records, environment = self._records, self._records.environment
        found = records.live_version(txn, key)
        if found is None:
            raise records.corrupt(txn, key, "the object has no version")
        revision, version = found
        if version.sealed and key_id(stored) == self._sealer.primary:
            return False
        plain = splice(records.plain(txn, key, stored, version), version.hole, 0)
        sealed = self._sealer.seal(self._type, key[4:], plain)
        row = Version(crc32c(sealed), version.flags | Flag.SEALED.value, version.hole)
        txn.put(key, sealed, db=environment.objects)
        packed = pack_version(row)
        txn.put(key + keys.revision_key(revision), packed, db=environment.versions)
        parts = keys.split(key)
        for cluster in (parts.cluster, ""):
            row_key = keys.cluster_row_key(cluster, parts.type_number)
            transaction.counters.resize(row_key, len(sealed) - len(stored))
        return True
