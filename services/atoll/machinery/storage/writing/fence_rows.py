"""The newest fencing token of each writer, kept beside the marks of the store.

`submit_transaction` looks before it writes, and notes the token after all else of a submit was accepted. Invariant: a
number never falls, until its writer is forgotten for others.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import TYPE_CHECKING

from atoll.machinery.storage.fencing import FencingToken

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Database, Txn

#: Of more writers the one is forgotten whose newest token came first. Its next write notes its token again.
MAX_WRITERS = 1000
_PREFIX = b"fence."
_ROW = struct.Struct(">QQ")


def holds(txn: Txn, marks: Database, token: FencingToken) -> bool:
    """Whether a write may be made with this token."""
    return token.number >= _newest(txn, marks, token)


def note(txn: Txn, marks: Database, token: FencingToken, revision: int) -> None:
    """Refuse older tokens of the writer from now on."""
    newest = _newest(txn, marks, token)
    if token.number <= newest:
        return
    if not newest:
        _make_room(txn, marks)
    txn.put(_key(token), _ROW.pack(token.number, revision), db=marks)


def _newest(txn: Txn, marks: Database, token: FencingToken) -> int:
    row = txn.get(_key(token), db=marks)
    number: int = _ROW.unpack(row)[0] if row is not None else 0
    return number


def _key(token: FencingToken) -> bytes:
    return _PREFIX + blake2b(token.writer.encode(), digest_size=16).hexdigest().encode()


def _make_room(txn: Txn, marks: Database) -> None:
    found: list[tuple[int, bytes]] = []
    with txn.cursor(marks) as cursor:
        on_row = cursor.set_range(_PREFIX)
        while on_row and cursor.key().startswith(_PREFIX):
            found.append((_ROW.unpack(cursor.value())[1], cursor.key()))
            on_row = cursor.next()
    for _, key in sorted(found)[: max(len(found) + 1 - MAX_WRITERS, 0)]:
        txn.delete(key, db=marks)
