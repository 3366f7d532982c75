"""What the controllers of the edge service keep on disk: positions in the shards' streams, and what was applied.

`changes` keeps positions, the placement translator its records. Invariant: losing the directory loses no object; all of
it is read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from atoll.machinery.storage.tables import Table, TableFile

POSITIONS, APPLIED = "positions", "applied"


class EdgeStore:
    """The open store of one process. Close it when done. Raises StoreInUse, UnsupportedFileSystem, OSError."""

    def __init__(self, directory: Path, *, allow_any_filesystem: bool = False) -> None:
        self._file = TableFile(directory, POSITIONS, APPLIED, allow_any_filesystem=allow_any_filesystem)
        #: Name of a shard -> position in its changes stream.
        self.positions: Table = self._file.tables[POSITIONS]
        #: What was written into mailboxes, by keys of the translator.
        self.applied: Table = self._file.tables[APPLIED]

    def write(self, changes: Mapping[str, Mapping[bytes, bytes | None]]) -> None:
        """Write rows of tables in one durable commit; None deletes a row."""
        self._file.write(changes)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
