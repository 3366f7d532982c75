"""Maintenance of a store that no process has open: marking a restored copy, rewriting the file.

`atoll mark-restored` and `atoll compact` call it. Each operation takes the directory as a writer does. Invariant: the
store is whole before and after each operation, at a crash in between too.
"""

from __future__ import annotations

import secrets

from atoll.machinery.storage.environment.databases import Void
from atoll.machinery.storage.environment.opening import move_in, new_directory, open_for_writing
from atoll.machinery.storage.options import StoreOptions


def mark_restored(options: StoreOptions, now_us: int) -> None:
    """Give a store that lost acknowledged history a new lineage, and void the revisions that it may have published."""
    opened = open_for_writing(options, now_us)
    try:
        with opened.env.begin(write=True) as txn:
            last = opened.last(txn)
            voids = [*opened.voids(txn), Void(last, max(last + 1, now_us))]
            opened.put_meta(txn, "voids", voids)
            opened.put_meta(txn, "lineage", secrets.token_hex(8))
    finally:
        opened.close()


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
