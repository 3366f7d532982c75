"""Damage to the rows of a store, each a function of a write transaction and its databases by name."""

from __future__ import annotations

from collections.abc import Callable

import lmdb

Damage = Callable[[lmdb.Transaction, dict[str, object]], None]


def drop_first(name: str) -> Damage:
    """Delete the first row of a database."""

    def damage(txn: lmdb.Transaction, dbs: dict[str, object]) -> None:
        with txn.cursor(dbs[name]) as cursor:  # type: ignore[arg-type]
            assert cursor.first()
            cursor.delete()

    return damage


def add(name: str, row: bytes, value: bytes) -> Damage:
    """Add a row that no commit wrote."""

    def damage(txn: lmdb.Transaction, dbs: dict[str, object]) -> None:
        txn.put(row, value, db=dbs[name])  # type: ignore[arg-type]

    return damage


def flip_last(name: str, offset: int) -> Damage:
    """Flip one bit of the last row's value."""

    def damage(txn: lmdb.Transaction, dbs: dict[str, object]) -> None:
        with txn.cursor(dbs[name]) as cursor:  # type: ignore[arg-type]
            assert cursor.last()
            value = bytearray(cursor.value())
            value[offset] ^= 1
            cursor.put(cursor.key(), bytes(value))

    return damage
