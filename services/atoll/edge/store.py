"""What the controllers of the edge service keep on disk: positions in the shards' streams, and what was applied.

`changes` keeps positions, the placement translator its records. Invariants: losing the directory loses no object, as
all of it is read again; and what is here is believed without a read only by the process that worked last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from atoll.machinery.storage.tables import Table, TableFile

POSITIONS, APPLIED, TENURE = "positions", "applied", "tenure"
#: How often pages of the file are released.
TRIM_S = 1.0
_ACQUIRED = b"acquired"
#: First bytes of keys in APPLIED that say what of a mailbox need not be read.
SWEPT, KINDS, BARE = b"s", b"k", b"b"
#: First byte of keys in APPLIED that say until when writes of an earlier process may come into a mailbox.
LATE = b"l"


class EdgeStore:
    """The open store of one process. Close it when done. Raises StoreInUse, UnsupportedFileSystem, OSError."""

    def __init__(self, directory: Path, *, allow_any_filesystem: bool = False) -> None:
        self._file = TableFile(directory, POSITIONS, APPLIED, TENURE, allow_any_filesystem=allow_any_filesystem)
        #: Name of a shard -> position in its changes stream.
        self.positions: Table = self._file.tables[POSITIONS]
        #: What was written into mailboxes, by keys of the translator.
        self.applied: Table = self._file.tables[APPLIED]

    def begin(self, former: str, acquired: str) -> bool:
        """Take down when this process got the work; return whether it had it last, too, so that nobody wrote since.

        `former` is when the last holder got it, as the Lease said before. Both are empty where the work is shared. If
        others may have written, every mailbox has to be read whole.
        """
        before = self._file.tables[TENURE].get(_ACQUIRED)
        is_resumed = before == former.encode()
        rows: dict[bytes, bytes | None] = {}
        if not is_resumed:
            rows = {key: None for prefix in (SWEPT, KINDS, BARE) for key, _ in self.applied.items(prefix)}
        if rows or (before or b"") != acquired.encode():
            self.write({APPLIED: rows, TENURE: {_ACQUIRED: acquired.encode() or None}})
        return is_resumed

    def write(self, changes: Mapping[str, Mapping[bytes, bytes | None]]) -> None:
        """Write rows of tables in one durable commit; None deletes a row."""
        self._file.write(changes)

    def is_bare(self, mailbox: str) -> bool:
        """Whether a mailbox has no binding of this service's configuration."""
        return self.applied.get(BARE + mailbox.encode()) is not None

    async def put_bare(self, mailbox: str, *, is_bare: bool) -> None:
        """Take down whether it has none. That of a mailbox which went stays until another process worked."""
        rows = {BARE + mailbox.encode(): b"1" if is_bare else None}
        await asyncio.to_thread(self.write, {APPLIED: rows})

    async def keep_small(self) -> None:
        """Have the pages that were read count as memory of the process for a moment only, until cancelled."""
        while True:
            await asyncio.sleep(TRIM_S)
            await asyncio.to_thread(self._file.trim)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
