"""The recent changes in memory, which most watches, the publisher and the controllers read instead of the log.

The hub appends the changes of each commit and drops the old ones. Invariant: the ring holds every change above its
floor, and never more than its limit in bytes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from atoll.machinery.storage.contract import Change, LogEntry, Operation

#: Memory of a change beside its two images.
_CHANGE_OVERHEAD_BYTES = 600
#: Dropped changes are freed when they are this many, or this part of the ring's limit.
_TRIM_ROWS = 4096
_TRIM_PART = 16
#: The latest changes that stay however old they are.
KEPT_BYTES = 1 << 20


class Ring:
    """The latest changes in order, bounded in bytes."""

    def __init__(self, floor: int, limit_bytes: int) -> None:
        #: Every change above this revision is held.
        self.floor = floor
        self.size_bytes = 0
        self.limit_bytes = limit_bytes
        self._changes: list[Change] = []
        self._revisions: list[int] = []
        self._head = 0
        self._dropped_bytes = 0

    def extend(self, changes: Sequence[Change]) -> None:
        """Append changes of one commit and drop the oldest beyond the limit."""
        self._changes.extend(changes)
        for change in changes:
            self._revisions.append(change.revision)
            self.size_bytes += len(change.after) + len(change.before or b"") + _CHANGE_OVERHEAD_BYTES
        while self.size_bytes > self.limit_bytes and self._head < len(self._changes):
            self._drop_oldest()
        if self._head and self._is_to_trim():
            self._free()

    def expire(self, revision: int) -> bool:
        """Drop the changes up to a revision, but not the latest `KEPT_BYTES`. Return whether none is left to drop.

        At most 4096 are dropped at a time, so that the event loop is free in between.
        """
        for _ in range(_TRIM_ROWS):
            if self.size_bytes <= KEPT_BYTES or self._revisions[self._head] > revision:
                self._free()
                return True
            self._drop_oldest()
        self._free()
        return False

    def _drop_oldest(self) -> None:
        dropped = self._changes[self._head]
        size_bytes = len(dropped.after) + len(dropped.before or b"") + _CHANGE_OVERHEAD_BYTES
        self.size_bytes -= size_bytes
        self._dropped_bytes += size_bytes
        self.floor = dropped.revision
        self._head += 1

    def _free(self) -> None:
        del self._changes[: self._head]
        del self._revisions[: self._head]
        self._head = self._dropped_bytes = 0

    def _is_to_trim(self) -> bool:
        if self._head == len(self._changes) or self._head >= _TRIM_ROWS:
            return True
        return self._dropped_bytes > self.limit_bytes // _TRIM_PART

    def above(self, revision: int, limit: int) -> list[Change]:
        """Return up to `limit` changes above a revision, which must not lie below the floor."""
        start = bisect_right(self._revisions, revision, lo=self._head)
        return self._changes[start : start + limit]

    def entries(self, revision: int, limit: int) -> list[LogEntry] | None:
        """Return the same as entries for the publisher; None if they must be read from the log.

        That is so below the floor, and if an entry is sealed: the ring holds plain values.
        """
        if revision < self.floor:
            return None
        found = []
        start = bisect_right(self._revisions, revision, lo=self._head)
        for change in self._changes[start : start + limit]:
            if change.sealed:
                return None
            found.append(_entry(change))
        return found

    def __len__(self) -> int:
        return len(self._changes) - self._head


def _entry(change: Change) -> LogEntry:
    value = change.after
    if change.operation is Operation.DELETED:
        assert change.before is not None
        value = change.before
    return LogEntry(
        revision=change.revision,
        operation=change.operation,
        key=change.key,
        value=value,
        sealed=False,
        crc=change.crc,
        previous=change.previous,
        previous_of_type=change.previous_of_type,
        before=change.before or b"",
    )
