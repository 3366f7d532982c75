"""The scrubber: reads every stored object and replica in the background and verifies its checksum.

`LmdbStore.maintain` runs one step a round, so a damaged object raises an alarm long before a client reads it. LMDB
pages carry no checksum. Invariant: a step is bounded, and a pass visits every object once.
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
    """Visits the objects of one environment, then the replicas, and starts over."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._after = b""
        self._is_at_replicas = False
        #: Damaged objects found since the process started; each pass counts them again.
        self.damaged = 0
        self.passes = 0

    def step(self) -> int:
        """Verify the next objects. Return their number. At the end the next step starts over."""
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
        """Go on with the other database at the end of one, unless it is empty."""
        self._after = b""
        self._is_at_replicas = not self._is_at_replicas and replicas is not None and txn.stat(replicas)["entries"] > 0
        self.passes += not self._is_at_replicas

    def _is_sound_replica(self, txn: Txn, key: bytes, stored: bytes) -> bool:
        row = unpack_replica(stored)
        if crc32c(row.value) == row.crc:
            return True
        self._records.corrupt(txn, key[key.index(b"\0") + 1 :], "replica checksum mismatch")
        return False

    def _is_sound(self, txn: Txn, key: bytes, stored: bytes) -> bool:
        """Return whether an object's checksum matches; raise the alarm if not."""
        records = self._records
        try:
            standing = records.live_version(txn, key)
            if standing is None:
                raise records.corrupt(txn, key, "the object has no version")
            records.verify(txn, key, stored, standing[1])
        except CorruptRecord:
            return False
        return True
