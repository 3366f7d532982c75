"""The scrubber: every stored object read again in the background, its checksum verified.

`LmdbStore.maintain` takes one step a round; a damaged object is alarmed long before somebody needs it. LMDB
pages carry no checksum, so nothing else would notice. Invariant: a step is bounded, and every object is
visited once a pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from atoll.machinery.storage.contract import CorruptRecord
from atoll.machinery.storage.records import Records

if TYPE_CHECKING:
    from atoll.machinery.storage.handles import Txn

#: Objects a step verifies: some 10 ms.
_STEP_ROWS = 2000
_STEP_BYTES = 8 << 20


class Scrubber:
    """Goes round the objects of one environment."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._after = b""
        #: Objects found damaged since the process started; one that stays damaged counts in each pass.
        self.damaged = 0
        self.passes = 0

    def step(self) -> int:
        """Verify the next objects; gives how many. At the end the next step starts over."""
        environment = self._records.environment
        visited, size_bytes = 0, 0
        with environment.reading() as txn, txn.cursor(environment.objects) as cursor:
            there = cursor.set_range(self._after + b"\0")
            while there and visited < _STEP_ROWS and size_bytes < _STEP_BYTES:
                self._after, stored = cursor.item()
                visited += 1
                size_bytes += len(stored)
                self.damaged += not self._sound(txn, self._after, stored)
                there = cursor.next()
        if not there:
            self._after = b""
            self.passes += 1
        return visited

    def _sound(self, txn: Txn, key: bytes, stored: bytes) -> bool:
        """Whether an object's checksum holds; the alarm is raised where it does not."""
        records = self._records
        try:
            standing = records.standing(txn, key)
            if standing is None:
                raise records.corrupt(txn, key, "the object has no version")
            records.verify(txn, key, stored, standing[1])
        except CorruptRecord:
            return False
        return True
