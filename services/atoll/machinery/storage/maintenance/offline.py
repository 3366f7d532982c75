"""Maintenance of a store that no process has open: marking a restored copy, rewriting the file.

`atoll mark-restored` and `atoll compact` call it; `restore` and `repair` begin lineages by it. Each operation takes the
directory as a writer does. Invariant: the store is whole before and after each operation, at a crash in between too.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from atoll.machinery.storage.environment import filesystem
from atoll.machinery.storage.environment.databases import Environment, Void
from atoll.machinery.storage.environment.opening import move_in, new_directory, open_for_writing
from atoll.machinery.storage.options import StoreOptions

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Txn


def mark_restored(options: StoreOptions, now_us: int) -> None:
    """Give a store that lost acknowledged history a new lineage, and void the revisions that it may have published."""
    opened = open_for_writing(options, now_us)
    try:
        with opened.env.begin(write=True) as txn:
            begin_lineage(opened, txn, opened.last(txn), max(opened.last(txn) + 1, now_us))
    finally:
        opened.close()


def begin_lineage(environment: Environment, txn: Txn, restored_to: int, first_new: int) -> None:
    """Give a store a new lineage: what it published above `restored_to` and below `first_new` means nothing."""
    before = [void for void in environment.voids(txn) if void.restored_to < restored_to]
    environment.put_meta(txn, "voids", [*before, Void(restored_to, first_new)])
    environment.put_meta(txn, "lineage", secrets.token_hex(8))


def keep_replaced(directory: Path) -> Path:
    """Give the file of a store a second name, which it has alone once another file is moved in."""
    number = 0
    while True:
        kept = directory / f"replaced-{number}.mdb"
        try:
            os.link(directory / filesystem.DATA_FILE, kept)
        except FileExistsError:
            number += 1
        else:
            return kept


def compact_file(options: StoreOptions, now_us: int) -> None:
    """Rewrite the file durably without its free pages, which may hold records of old keys or deleted objects."""
    opened = open_for_writing(options, now_us)
    try:
        with new_directory(opened.directory) as fresh:
            opened.env.copy(str(fresh), compact=True)
            opened.env.close()
            move_in(fresh, opened.directory)
    finally:
        opened.close()
