"""The scrubber: every stored object and replica read again in the background, its checksum verified.

`LmdbStore.maintain` takes one step a round; a damaged object is alarmed long before somebody needs it. LMDB
pages carry no checksum, so nothing else would notice. Invariant: a step is bounded, and every object is
visited once a pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from google_crc32c import value as crc32c

from atoll.machinery.storage.contract import CorruptRecord
from atoll.machinery.storage.encoding.rows import unpack_replica
from atoll.machinery.storage.reading.records import Records

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Database, Txn

#: Objects a step verifies: some 10 ms.
_STEP_ROWS = 2000
_STEP_BYTES = 8 << 20


class Scrubber:
    """Goes round the objects of one environment, and behind them round what other shards published."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._after = b""
        self._is_at_replicas = False
        #: Objects found damaged since the process started; one that stays damaged counts in each pass.
        self.damaged = 0
        self.passes = 0

    def step(self) -> int:
        """Verify the next objects; gives how many. At the end the next step starts over."""
        environment, replicas = self._records.environment, self._records.environment.replicas
        visited, size_bytes = 0, 0
        db = replicas.rows if self._is_at_replicas and replicas is not None else environment.objects
        sound = self._is_sound_replica if self._is_at_replicas else self._is_sound
        with environment.reading() as txn, txn.cursor(db) as cursor:
            on_row = cursor.set_range(self._after + b"\0")
            while on_row and visited < _STEP_ROWS and size_bytes < _STEP_BYTES:
                self._after, stored = cursor.item()
                visited += 1
                size_bytes += len(stored)
                self.damaged += not sound(txn, self._after, stored)
                on_row = cursor.next()
            if not on_row:
                self._turn(txn, replicas.rows if replicas is not None else None)
        return visited

    def _turn(self, txn: Txn, replicas: Database | None) -> None:
        """At the end of a database: on to the other one, if there is anything in it."""
        self._after = b""
        self._is_at_replicas = not self._is_at_replicas and replicas is not None and txn.stat(replicas)["entries"] > 0
        self.passes += not self._is_at_replicas

    def _is_sound_replica(self, txn: Txn, key: bytes, stored: bytes) -> bool:
        row = unpack_replica(stored)
        if crc32c(row.value) == row.crc:
            return True
        self._records.corrupt(txn, key[key.index(b"\0") + 1 :], "checksum of a replica does not hold")
        return False

    def _is_sound(self, txn: Txn, key: bytes, stored: bytes) -> bool:
        """Whether an object's checksum holds; the alarm is raised where it does not."""
        records = self._records
        try:
            standing = records.live_version(txn, key)
            if standing is None:
                raise records.corrupt(txn, key, "the object has no version")
            records.verify(txn, key, stored, standing[1])
        except CorruptRecord:
            return False
        return True
