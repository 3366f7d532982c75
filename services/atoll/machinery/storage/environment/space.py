"""Whether the store has room: page quota and free disk, measured about once a second.

The writer checks it before each batch. In a full store creates and updates are refused; deletes, steps of a deletion
and leases go on, and compaction frees pages. Free pages inside the file count as room, because the file never shrinks.
Invariant: a store with room accepts writes again without a restart.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import lmdb

from atoll.machinery.storage.environment import filesystem
from atoll.machinery.storage.environment.databases import Environment
from atoll.machinery.storage.options import StoreOptions

_INTERVAL_S = 1.0


class Space:
    """Measures room. Belongs to the writer."""

    def __init__(self, environment: Environment, options: StoreOptions, steady: Callable[[], float]) -> None:
        self._environment, self._options, self._steady = environment, options, steady
        self._measured_at = float("-inf")
        #: Whether the last check measured, which one a second does.
        self.measured = False
        self.full = False
        self.used_bytes = 0
        self.room_bytes = 0
        #: Bytes that others may still write to this disk, whatever the store does: no room of the store.
        self.claimed_bytes = 0
        #: Called each time that the store becomes full, maybe in the commit thread: who claims bytes gives them back.
        self.on_full: Callable[[], None] = _nothing

    def check(self) -> bool:
        """Return whether creates and updates must be refused now."""
        now = self._steady()
        self.measured = now - self._measured_at >= _INTERVAL_S
        if self.measured:
            self._measured_at = now
            self.measure()
        return self.full

    def measure(self) -> None:
        """Measure the file and the disk."""
        environment = self._environment
        info = environment.env.info()
        page_bytes = environment.env.stat()["psize"]
        with environment.reading() as txn:
            stats = [txn.stat(db) for db in environment.handles.values()]
        pages = sum(stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"] for stat in stats)
        self.used_bytes = pages * page_bytes
        file_bytes = (info["last_pgno"] + 1) * page_bytes
        reusable = max(0, file_bytes - self.used_bytes)
        self.room_bytes = filesystem.free_bytes(environment.directory) + reusable - self.claimed_bytes
        quota = self._options.quota_bytes
        self._note(self.room_bytes < self._options.reserve_bytes or bool(quota and self.used_bytes >= quota))

    def has_refused(self, error: lmdb.Error) -> bool:
        """Whether a commit failed because no room was left, so that nothing of it is in the store.

        Of pages that were written in part LMDB says EIO, as of a disk that fails: only the room tells which it was.
        """
        if isinstance(error, (lmdb.MapFullError, lmdb.TxnFullError)):
            return True
        # LMDB has a class of its own for a full disk, and none for a quota.
        if any(os.strerror(each) in str(error) for each in filesystem.NO_ROOM):
            return True
        is_partial = os.strerror(errno.EIO) in str(error)
        return is_partial and not filesystem.has_room(self._environment.directory, self._options.reserve_bytes)

    def refuse(self) -> None:
        """Count the store as full until the next measurement: the disk refused a write."""
        self._measured_at = self._steady()
        self._note(True)

    def _note(self, full: bool) -> None:
        before, self.full = self.full, full
        if full and not before:
            self.on_full()


def _nothing() -> None:
    """The default of `on_full`."""
