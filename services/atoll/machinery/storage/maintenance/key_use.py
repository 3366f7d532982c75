"""How many records a sealing key still seals: a key may be dropped once it seals none.

`atoll rotate` asks it how far a running shard is, and with `--drop` has it drop a key. Current objects and the
before-images of the retained log are counted; what the streams hold is not in the file.
Invariant: the key file changes only if both counts are 0 and no process can seal with the key any more: either none has
the store open for writing, or the one that has it noted, in the same transaction that was counted in, that it seals
with the primary key.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from atoll.machinery.storage import sealing
from atoll.machinery.storage.encoding.rows import unpack_entry
from atoll.machinery.storage.environment.databases import Environment
from atoll.machinery.storage.environment.opening import open_for_reading, open_for_writing
from atoll.machinery.storage.options import StoreOptions
from atoll.machinery.storage.reading.records import Records, log_alarm
from atoll.machinery.storage.sealing import key_id

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Txn


class KeyUse(msgspec.Struct, frozen=True):
    """Records under one key: current objects, and before-images in the log."""

    objects: int
    log_entries: int

    def __bool__(self) -> bool:
        return bool(self.objects or self.log_entries)


class KeyNotReplaced(Exception):
    """The running shard does not say yet that it seals with the primary key."""


class KeyInUse(Exception):
    """Records of the store are sealed with the key, so the key file keeps it."""

    def __init__(self, number: int, use: KeyUse) -> None:
        super().__init__(f"key {number} seals {use.objects} objects and {use.log_entries} log entries")
        self.number, self.use = number, use


def drop_key(options: StoreOptions, number: int, now_us: int) -> None:
    """Remove a key from the key file. Raise KeyInUse, or KeyFileInvalid for the primary and an unknown key."""
    with closing(open_for_writing(options, now_us)) as environment:
        sealing.require_removable(Path(options.key_file), number)
        with environment.reading() as txn:
            use = _key_use(environment, txn, number)
        if use:
            raise KeyInUse(number, use)
        sealing.remove_key(Path(options.key_file), number)


def drop_key_of_running(options: StoreOptions, number: int) -> None:
    """Remove a key from the key file of a running shard. Raise KeyInUse, KeyNotReplaced, or KeyFileInvalid for the
    primary and an unknown key."""
    file = Path(options.key_file)
    sealing.require_removable(file, number)
    primary = sealing.primary_key(file)
    with closing(open_for_reading(options)) as environment, environment.reading() as txn:
        if environment.sealing_key(txn) != primary:
            raise KeyNotReplaced(f"the shard does not seal with key {primary} yet")
        use = _key_use(environment, txn, number)
    if use:
        raise KeyInUse(number, use)
    sealing.remove_key(file, number)


def sealed_by_earlier(options: StoreOptions) -> int:
    """How many objects other keys than the primary one seal, in the store of a running shard. Raises KeyFileInvalid."""
    primary = sealing.primary_key(Path(options.key_file))
    with closing(open_for_reading(options)) as environment, environment.reading() as txn:
        earlier = [number for number in sealing.numbers(Path(options.key_file)) if number != primary]
        return sum(_sealed_objects(environment, txn, number) for number in earlier)


def _key_use(environment: Environment, txn: Txn, number: int) -> KeyUse:
    return KeyUse(_sealed_objects(environment, txn, number), _sealed_entries(environment, txn, number))


def _sealed_objects(environment: Environment, txn: Txn, number: int) -> int:
    records, count = Records(environment, None, log_alarm, frozenset()), 0
    for type in environment.sealed_types(txn):
        prefix = environment.type_table.number(txn, type).to_bytes(4, "big")
        with txn.cursor(environment.objects) as cursor:
            on_row = cursor.set_range(prefix)
            while on_row and cursor.key().startswith(prefix):
                found = records.live_version(txn, cursor.key())
                count += found is not None and found[1].sealed and key_id(cursor.value()) == number
                on_row = cursor.next()
    return count


def _sealed_entries(environment: Environment, txn: Txn, number: int) -> int:
    count = 0
    with txn.cursor(environment.log) as cursor:
        for _, raw in cursor:
            entry = unpack_entry(raw)
            if entry.before is not None and entry.before_version is not None and entry.before_version.sealed:
                count += key_id(entry.before) == number
    return count
