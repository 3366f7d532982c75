"""The newest fencing token of each writer, kept beside the marks of the store.

`submit_transaction` looks before it writes, and notes the token after all else of a submit was accepted. Invariant: a
number never falls, until its writer is forgotten for others; those of one home are forgotten for each other first.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from hashlib import blake2b
from typing import TYPE_CHECKING

from atoll.machinery.storage.fencing import FencingToken

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Database, Txn

#: Of more writers of one home the one is forgotten whose newest token came first. Its next write notes its token again.
MAX_OF_HOME = 20
#: Of more writers of all homes those are forgotten that are the most of their home, and so many at once.
MAX_WRITERS, FORGOTTEN_AT_ONCE = 10_000, 100
_PREFIX = b"fence."
_ROW = struct.Struct(">QQ")
_HOME_BYTES, _WRITER_BYTES = 8, 16
_END_OF_HOME = len(_PREFIX) + 2 * _HOME_BYTES


def holds(txn: Txn, marks: Database, token: FencingToken) -> bool:
    """Whether a write may be made with this token."""
    return token.number >= _newest(txn, marks, token)


def note(txn: Txn, marks: Database, token: FencingToken, revision: int) -> None:
    """Refuse older tokens of the writer from now on."""
    newest = _newest(txn, marks, token)
    if token.number <= newest:
        return
    key = _key(token)
    if not newest:
        _make_room(txn, marks, key[:_END_OF_HOME])
    txn.put(key, _ROW.pack(token.number, revision), db=marks)


def _newest(txn: Txn, marks: Database, token: FencingToken) -> int:
    row = txn.get(_key(token), db=marks)
    number: int = _ROW.unpack(row)[0] if row is not None else 0
    return number


def _key(token: FencingToken) -> bytes:
    return _PREFIX + _digest(token.home, _HOME_BYTES) + _digest(token.writer, _WRITER_BYTES)


def _digest(text: str, size: int) -> bytes:
    return blake2b(text.encode(), digest_size=size).hexdigest().encode()


def _make_room(txn: Txn, marks: Database, home: bytes) -> None:
    own = _by_age(txn, marks, home)
    for key in own[: max(len(own) + 1 - MAX_OF_HOME, 0)]:
        txn.delete(key, db=marks)
    if txn.stat(marks)["entries"] >= MAX_WRITERS:
        _make_room_of_all(txn, marks)


def _make_room_of_all(txn: Txn, marks: Database) -> None:
    """Delete rows of the homes that have most, so that one with few keeps them."""
    found = _by_age(txn, marks, _PREFIX)
    if len(found) < MAX_WRITERS:
        return
    newer: defaultdict[bytes, int] = defaultdict(int)
    ranked: list[tuple[int, int, bytes]] = []
    for age, key in enumerate(reversed(found)):
        home = key[:_END_OF_HOME]
        ranked.append((newer[home], age, key))
        newer[home] += 1
    for _, _, key in sorted(ranked, reverse=True)[:FORGOTTEN_AT_ONCE]:
        txn.delete(key, db=marks)


def _by_age(txn: Txn, marks: Database, prefix: bytes) -> list[bytes]:
    """Return the keys of rows with a prefix, the one that was noted first at the front."""
    found: list[tuple[int, bytes]] = []
    with txn.cursor(marks) as cursor:
        on_row = cursor.set_range(prefix)
        while on_row and cursor.key().startswith(prefix):
            found.append((_ROW.unpack(cursor.value())[1], cursor.key()))
            on_row = cursor.next()
    return [key for _, key in sorted(found)]
