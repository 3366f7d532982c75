"""A store from a backup, at the backup's revision or at an earlier one that its log reaches.

`atoll restore` calls it for a directory without a store, or in place of one whose shard is stopped. The copy is
received, checked whole and rolled back beside the store, and moved in with one rename. Invariant: until then the store
is untouched; afterwards it has a new lineage, revisions that may have been published since are void, and its epochs
and revisions are above any that the store before it gave out.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import lmdb
import msgspec

from atoll.machinery.storage import sealing
from atoll.machinery.storage.environment import filesystem
from atoll.machinery.storage.environment.databases import FORMAT_VERSION
from atoll.machinery.storage.environment.opening import (
    UnknownFormat,
    WrongShard,
    move_in,
    new_directory,
    open_for_reading,
    open_for_writing,
)
from atoll.machinery.storage.maintenance.backup import Manifest, facts_of
from atoll.machinery.storage.maintenance.backup_files import BadBackup
from atoll.machinery.storage.maintenance.fsck import fsck
from atoll.machinery.storage.maintenance.newer import write_newer
from atoll.machinery.storage.maintenance.offline import begin_lineage, keep_replaced
from atoll.machinery.storage.maintenance.rebuild import Rebuild, records_of
from atoll.machinery.storage.maintenance.rollback import roll_back
from atoll.machinery.storage.options import StoreOptions

#: Copies the pages of a backup into a directory.
Receive = Callable[[Path], Manifest]


class StoreExists(Exception):
    """There is a store, and it was not to be replaced."""


class Restored(msgspec.Struct, frozen=True):
    """The revision that the store has now, how many later writes of the backup were undone, where the store is that
    stood there before, and how many objects were newer in it; None: there was none, or it cannot be read."""

    revision: int
    undone: int
    replaced: Path | None
    newer: int | None = None


class _Before(msgspec.Struct, frozen=True):
    """What a store that is replaced gave out at most."""

    revision: int = 0
    epoch: int = 0


def restore(
    options: StoreOptions, receive: Receive, now_us: int, to_revision: int | None = None, *, in_place: bool = False
) -> Restored:
    """Restore a store. `to_revision` is not above the backup's.

    Raises BadBackup, NotRetained, StoreExists, StoreInUse, UnknownFormat, UnsupportedFileSystem, WrongShard,
    KeyFileInvalid or OSError; then a store that stands there is as it was.
    """
    directory = Path(options.directory)
    if not options.allow_any_filesystem:
        filesystem.require_local(directory)
    filesystem.prepare_directory(directory)
    owner_fd = filesystem.own(directory)
    try:
        exists = (directory / filesystem.DATA_FILE).exists()
        if exists and not in_place:
            raise StoreExists(str(directory))
        with new_directory(directory) as fresh:
            copy = msgspec.structs.replace(options, directory=str(fresh))
            manifest = receive(fresh)
            _require_ours(copy, manifest)
            before = _before(options) if exists else _Before()
            revision, undone = _make_present(copy, before, now_us, to_revision)
            _require_sound(copy)
            replaced = keep_replaced(directory) if exists else None
            newer = _list_newer(options, revision, listing_of(replaced)) if replaced is not None else None
            move_in(fresh, directory)
        return Restored(revision, undone, replaced, newer)
    finally:
        os.close(owner_fd)


def listing_of(replaced: Path) -> Path:
    """The file that names what was newer in a store that was replaced, as `newer.write_newer` writes it."""
    return replaced.with_suffix(".newer.jsonl")


def _list_newer(options: StoreOptions, revision: int, path: Path) -> int | None:
    """List what was newer in the store that is replaced; None, without a list, if it is damaged. Raises OSError."""
    try:
        return write_newer(options, revision, path)
    except OSError:
        raise
    except Exception:
        # Damaged pages may raise any exception, and are a reason to restore.
        path.unlink(missing_ok=True)
        return None


def _require_ours(copy: StoreOptions, manifest: Manifest) -> None:
    if manifest.store_format > FORMAT_VERSION:
        raise UnknownFormat(f"the backup has format {manifest.store_format}, this version reads {FORMAT_VERSION}")
    if manifest.store.shard != copy.shard:
        raise WrongShard(f"the backup is of shard {manifest.store.shard!r}, not {copy.shard!r}")
    if manifest.sealing_keys:
        sealing.require_numbers(Path(copy.key_file), manifest.sealing_keys)
    try:
        with closing(open_for_reading(copy)) as environment, environment.reading() as txn:
            found = facts_of(environment, txn)
    except lmdb.Error as error:
        raise BadBackup(f"the pages are no store: {error}") from error
    if found != manifest.store:
        raise BadBackup("the manifest is that of another backup")
    _require_sound(copy)


def _require_sound(copy: StoreOptions) -> None:
    try:
        problems = fsck(copy)
    except Exception as error:
        # Damaged pages may raise any exception.
        raise BadBackup(f"the store in it cannot be read: {error}") from error
    if problems:
        first = problems[0]
        raise BadBackup(f"the store in it has {len(problems)} problems; the first: {first.where}: {first.what}")


def _before(options: StoreOptions) -> _Before:
    """Return what the store that is replaced gave out; of one that cannot be read the clock alone tells."""
    try:
        with closing(open_for_reading(options)) as environment, environment.reading() as txn:
            ends = [void.first_new - 1 for void in environment.voids(txn)]
            return _Before(max([environment.last(txn), *ends]), environment.get_meta(txn, "epoch", 0))
    except (lmdb.Error, UnknownFormat, msgspec.DecodeError):
        return _Before()


def _make_present(copy: StoreOptions, before: _Before, now_us: int, to_revision: int | None) -> tuple[int, int]:
    """Roll the copy back and give it its new lineage; return its revision and the number of undone writes."""
    with closing(open_for_writing(copy, now_us)) as environment, environment.env.begin(write=True) as txn:
        highest, undone = max(environment.last(txn), before.revision), 0
        if to_revision is not None:
            undone = roll_back(environment, txn, to_revision)
        if undone:
            Rebuild(records_of(environment, copy, txn), copy, txn).run()
        revision = environment.last(txn)
        begin_lineage(environment, txn, revision, max(highest + 1, now_us))
        environment.put_meta(txn, "epoch", max(environment.get_meta(txn, "epoch", 0), before.epoch))
    return revision, undone
