"""The `types` database: (group, resource, identity) to the 4-byte number that keys start with, and back.

Writer and readers look types up here. A number is assigned once and never reused, so both directions are cached for the
life of the process. Invariant: a number enters the cache only after its transaction committed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from atoll.machinery.meta.names import ResourceType

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Database, Txn


_NUMBER = struct.Struct(">I")
#: Number 0 is no type: gate rows of `clusters` stand there.
NO_TYPE = 0
#: Distinct kinds a process keeps in memory; one row is about 300 bytes. Beyond it the tables start afresh.
_CACHE_ROWS = 65_536
#: Groups of types whose numbers are kept: the code names a handful.
_CACHE_GROUPS = 64


def _words(type: ResourceType) -> bytes:
    return b"t" + "\0".join((type.group, type.resource, type.identity)).encode()


class TypeTable:
    """Both directions of `types`, cached."""

    def __init__(self, db: Database) -> None:
        self._db = db
        #: Cached numbers, for readers: `number` looks up the others.
        self.numbers: dict[ResourceType, int] = {}
        #: What `numbers_of` found, and the size of the table then: rows are never removed.
        self._groups: dict[tuple[ResourceType, ...], tuple[int, list[int]]] = {}
        self._types: dict[int, ResourceType] = {}
        #: Numbers given in the write transaction that runs now.
        self._pending: set[int] = set()

    def number(self, txn: Txn, type: ResourceType) -> int:
        """Return the number of a type, NO_TYPE if nothing of it was ever stored."""
        found = self.numbers.get(type)
        if found is not None:
            return found
        row = txn.get(_words(type), db=self._db)
        if row is None:
            return NO_TYPE
        number: int = _NUMBER.unpack(row)[0]
        self._remember(type, number)
        return number

    def numbers_of(self, txn: Txn, types: Sequence[ResourceType]) -> list[int]:
        """Return the numbers of types in a read transaction, NO_TYPE of those that were never stored: repeated look-ups
        are cheap."""
        size, group = txn.stat(self._db)["entries"], tuple(types)
        known = self._groups.get(group)
        if known is None or known[0] != size:
            if len(self._groups) >= _CACHE_GROUPS:
                self._groups.clear()
            known = size, [self.number(txn, type) for type in types]
            self._groups[group] = known
        return known[1]

    def type(self, txn: Txn, number: int) -> ResourceType:
        """Return the type of a number found in a key. Raise KeyError if the table lacks it (a damaged store)."""
        found = self._types.get(number)
        if found is not None:
            return found
        row = txn.get(b"n" + _NUMBER.pack(number), db=self._db)
        if row is None:
            raise KeyError(number)
        type = ResourceType(*bytes(row).decode().split("\0"))
        self._remember(type, number)
        return type

    def intern(self, txn: Txn, type: ResourceType, fresh: dict[ResourceType, int]) -> int:
        """Return the number of a type in a write transaction; assign one if needed and add it to `fresh`.

        The caller reports the end of the transaction with `finish`.
        """
        known = self.numbers.get(type) or fresh.get(type)
        if known:
            return known
        row = txn.get(_words(type), db=self._db)
        if row is not None:
            number: int = _NUMBER.unpack(row)[0]
        else:
            number = txn.stat(self._db)["entries"] // 2 + 1
            txn.put(_words(type), _NUMBER.pack(number), db=self._db)
            txn.put(b"n" + _NUMBER.pack(number), _words(type)[1:], db=self._db)
        self._pending.add(number)
        fresh[type] = number
        return number

    def finish(self, fresh: dict[ResourceType, int], *, committed: bool) -> None:
        """Cache the numbers of a write transaction, or drop them."""
        self._pending.difference_update(fresh.values())
        if committed:
            for type, number in fresh.items():
                self._remember(type, number)

    def _remember(self, type: ResourceType, number: int) -> None:
        if number in self._pending:
            return
        if len(self.numbers) >= _CACHE_ROWS:
            self.numbers, self._types = {}, {}
        self.numbers[type] = number
        self._types[number] = type

    def identities(self, txn: Txn, group: str, resource: str) -> list[str]:
        """Return the identities of a resource, sorted."""
        prefix = _words(ResourceType(group, resource, ""))
        return [words[len(prefix) :].decode() for words, _ in self._behind(txn, prefix)]

    def of_group(self, txn: Txn, group: str) -> list[int]:
        """Return the numbers of the types of a group."""
        prefix = _words(ResourceType(group, "", "")).removesuffix(b"\0\0") + b"\0"
        return [_NUMBER.unpack(number)[0] for _, number in self._behind(txn, prefix)]

    def _behind(self, txn: Txn, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        with txn.cursor(self._db) as cursor:
            if cursor.set_range(prefix):
                for key, value in cursor:
                    if not bytes(key).startswith(prefix):
                        break
                    yield bytes(key), bytes(value)

    def all(self, txn: Txn) -> dict[int, ResourceType]:
        """Return every type ever stored."""
        numbers = {}
        with txn.cursor(self._db) as cursor:
            if cursor.set_range(b"n"):
                for key, value in cursor:
                    if not bytes(key).startswith(b"n"):
                        break
                    words = bytes(value).decode().split("\0")
                    numbers[_NUMBER.unpack(bytes(key)[1:])[0]] = ResourceType(*words)
        return numbers
