"""Damage to the rows of a store, each a function of a write transaction and its databases by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

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


def spoil(directory: Path, damage: Damage) -> None:
    """Damage a store that no process has open."""
    env = lmdb.open(str(directory), map_size=1 << 40, max_dbs=32)
    names = ("objects", "versions", "log", "clusters", "owners", "labels", "meta", "replica_counters")
    dbs: dict[str, object] = {name: env.open_db(name.encode()) for name in names}
    with env.begin(write=True) as txn:
        damage(txn, dbs)
    env.close()


#: Kinds of damage, each with the database in which `fsck` finds it.
KINDS: list[tuple[Damage, str]] = [
    (drop_first("objects"), "versions"),
    (drop_first("versions"), "versions"),
    (drop_first("log"), "log"),
    (drop_first("clusters"), "clusters"),
    (drop_first("owners"), "owners"),
    (drop_first("labels"), "labels"),
    (flip_last("objects", -3), "objects"),
    (flip_last("log", -3), "log"),
    (flip_last("versions", 0), "objects"),
    (flip_last("clusters", 7), "clusters"),
    (add("owners", b"c\0" + b"x" * 40, b""), "owners"),
    (add("labels", b"x" * 40, b""), "labels"),
    (add("meta", b"last", b"\x01"), "meta"),
    (add("log", b"\xff" * 8, b"torn"), "log"),
    (add("clusters", b"c\0torn", b"torn"), "clusters"),
]
