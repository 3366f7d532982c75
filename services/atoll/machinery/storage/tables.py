"""Named tables of bytes in an LMDB file of their own, for a process that keeps notes but stores no objects.

The controllers of the edge service keep positions and records in one. Invariant: a batch is written whole and durable,
or not at all; one process at a time has the directory open.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import lmdb

from atoll.machinery.storage.environment import filesystem
from atoll.machinery.storage.maintenance.residency import Residency

#: Address space, not memory: the file grows as it is filled.
_MAP_BYTES = 16 << 30
_PAGE = 1000
#: Most bytes of mapped files, the interpreter's among them, that `trim` leaves resident.
RESIDENT_BYTES = 32 << 20


class Table:
    """One table, in the order of its keys, which have 1 to 511 bytes."""

    def __init__(self, env: lmdb.Environment, name: str) -> None:
        self._env = env
        self.handle = env.open_db(name.encode())

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key; None if it is absent."""
        with self._env.begin(db=self.handle) as txn:
            found: bytes | None = txn.get(key)
            return found

    def get_many(self, keys: Iterable[bytes]) -> list[bytes | None]:
        """Return the values of keys, all of one moment; None for each that is absent."""
        with self._env.begin(db=self.handle) as txn:
            return [txn.get(key) for key in keys]

    def items(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the rows whose key begins with a prefix. Rows written meanwhile may be seen or not."""
        key: bytes | None = prefix
        while key is not None:
            page = self._page(prefix, key)
            yield from page
            key = page[-1][0] + b"\0" if len(page) == _PAGE else None

    def _page(self, prefix: bytes, start: bytes) -> list[tuple[bytes, bytes]]:
        found: list[tuple[bytes, bytes]] = []
        with self._env.begin(db=self.handle) as txn, txn.cursor() as cursor:
            if not cursor.set_range(start):
                return found
            for key, value in cursor:
                if not key.startswith(prefix) or len(found) == _PAGE:
                    break
                found.append((key, value))
        return found


class TableFile:
    """An open file with its tables, which are made as needed. Raises StoreInUse, UnsupportedFileSystem, OSError."""

    def __init__(self, directory: Path, *names: str, allow_any_filesystem: bool = False) -> None:
        if not allow_any_filesystem:
            filesystem.require_local(directory)
        filesystem.prepare_directory(directory)
        self._owner_fd = filesystem.own(directory)
        try:
            self._env = lmdb.open(str(directory), map_size=_MAP_BYTES, max_dbs=len(names), mode=0o600)
            self._residency = Residency(directory / filesystem.DATA_FILE, RESIDENT_BYTES)
            self.tables = {name: Table(self._env, name) for name in names}
        except BaseException:
            os.close(self._owner_fd)
            raise

    def write(self, changes: Mapping[str, Mapping[bytes, bytes | None]]) -> None:
        """Write rows of tables in one durable commit; None deletes a row."""
        with self._env.begin(write=True) as txn:
            for name, rows in changes.items():
                handle = self.tables[name].handle
                for key, value in rows.items():
                    if value is None:
                        txn.delete(key, db=handle)
                    else:
                        txn.put(key, value, db=handle)

    def trim(self) -> int:
        """Release pages of the file that were read, if there are many; return the bytes before, 0 if none were."""
        return self._residency.trim()

    def close(self) -> None:
        """Close the file."""
        self._env.close()
        os.close(self._owner_fd)
