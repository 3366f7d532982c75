"""The state of a store at an earlier revision, made its present state.

`restore` calls it on a copy of a store. Each log entry holds the record before its write, so the entries above the
revision are undone, the last first. Invariant: the objects, versions and log are those that the store had at the
revision; what follows from them is written anew by `rebuild`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from atoll.machinery.storage.encoding import keys
from atoll.machinery.storage.encoding.rows import Entry, pack_version, unpack_entry
from atoll.machinery.storage.environment.databases import Environment

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Txn


class NotRetained(Exception):
    """The log does not reach back to the revision, or the store never came to it."""


def roll_back(environment: Environment, txn: Txn, revision: int) -> int:
    """Undo every write above a revision. Return the number of writes undone. Raises NotRetained."""
    compacted, last = environment.compacted(txn), environment.last(txn)
    if not compacted <= revision:
        raise NotRetained(f"revision {revision} was compacted: the log reaches back to {compacted}")
    if revision > last:
        raise NotRetained(f"revision {revision} is not in the backup, which ends at {last}")
    undone = 0
    while (found := _last_entry(environment, txn)) is not None and found[0] > revision:
        _undo(environment, txn, *found)
        undone += 1
    now = found[0] if found is not None else compacted
    environment.put_meta(txn, "last", now)
    published: int = environment.get_meta(txn, "published", -1)
    if published > now:
        environment.put_meta(txn, "published", now)
    return undone


def _last_entry(environment: Environment, txn: Txn) -> tuple[int, Entry] | None:
    with txn.cursor(environment.log) as cursor:
        if not cursor.last():
            return None
        return keys.revision_of_key(cursor.key()), unpack_entry(cursor.value())


def _undo(environment: Environment, txn: Txn, revision: int, entry: Entry) -> None:
    txn.delete(keys.revision_key(revision), db=environment.log)
    txn.delete(entry.key + keys.revision_key(revision), db=environment.versions)
    if entry.before is None or entry.before_version is None:
        txn.delete(entry.key, db=environment.objects)
        return
    txn.put(entry.key, entry.before, db=environment.objects)
    row = entry.key + keys.revision_key(entry.previous)
    txn.put(row, pack_version(entry.before_version), db=environment.versions)
