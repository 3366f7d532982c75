"""Brings the file of a store to the format of this version, after a backup that the earlier version can restore.

A shard's start calls it before it opens its store. The file is copied from the backup, which proves that it can be
read, changed, checked whole, and moved in with one rename. Invariant: until then the file is as the earlier version
left it, to the byte; a run after one that was killed in between does what is left.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import lmdb
import msgspec

from atoll.machinery.storage.environment import filesystem
from atoll.machinery.storage.environment.databases import FORMAT_VERSION
from atoll.machinery.storage.environment.opening import UnknownFormat, move_in, new_directory, open_raw, read_meta
from atoll.machinery.storage.maintenance.backup import BackupFailed, back_up
from atoll.machinery.storage.maintenance.backup_files import MANIFEST, BadBackup, DirectoryTarget, receive
from atoll.machinery.storage.maintenance.fsck import fsck
from atoll.machinery.storage.options import MIB, StoreOptions

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Txn

#: Changes a file of one format into the next, in one transaction.
Step = Callable[[lmdb.Environment, "Txn"], None]
#: The steps by the format that they begin with. There was no format before the first.
STEPS: dict[int, Step] = {}
#: Nobody is served while it runs.
_RATE_BYTES_S = 1024 * MIB


class UpgradeRefused(UnknownFormat):
    """The file has an earlier format, and stays as it is."""


class Upgraded(msgspec.Struct, frozen=True):
    """The format that the file had, and the backup of it."""

    format: int
    backup: Path


def upgrade(options: StoreOptions, *, allowed: bool, steps: Mapping[int, Step] = STEPS) -> Upgraded | None:
    """Upgrade a store of an earlier format; None if there is nothing to do, or nothing that this version knows.

    The backup is made beside the store's directory. Raises UpgradeRefused, StoreInUse, KeyFileInvalid, OSError; then
    the file is unchanged.
    """
    directory = Path(options.directory)
    found = _format_of(options)
    if found >= FORMAT_VERSION or any(number not in steps for number in range(found, FORMAT_VERSION)):
        # What is of a later version, or older than all that this one knows, is refused by the opening.
        return None
    if not allowed:
        raise UpgradeRefused(
            f"{directory} has format {found}, this version writes {FORMAT_VERSION}: start it with"
            " --allow-format-upgrade, which makes a backup first, or with the earlier version"
        )
    owner_fd = filesystem.own(directory)
    try:
        with new_directory(directory) as fresh:
            backup = _backed_up(options, found, fresh)
            copy = msgspec.structs.replace(options, directory=str(fresh))
            _apply(copy, found, steps)
            if problems := fsck(copy):
                first = problems[0]
                raise UpgradeRefused(f"after the upgrade {first.where} would be damaged: {first.what}")
            move_in(fresh, directory)
        return Upgraded(found, backup)
    except (BadBackup, BackupFailed) as error:
        raise UpgradeRefused(f"{directory} is not upgraded without a backup: {error}") from error
    finally:
        os.close(owner_fd)


def _format_of(options: StoreOptions) -> int:
    """Return the format of the file; that of this version where there is none, or none that can be read."""
    directory = Path(options.directory)
    if not (directory / filesystem.DATA_FILE).exists():
        return FORMAT_VERSION
    try:
        (found,) = read_meta(directory, options, "format")
    except UnknownFormat:
        # The opening refuses it, and says why.
        return FORMAT_VERSION
    return found if isinstance(found, int) else FORMAT_VERSION


def _backed_up(options: StoreOptions, found: int, fresh: Path) -> Path:
    """Return the backup of the store as it is now, of this run or of an earlier one; put its pages into `fresh`."""
    directory = Path(options.directory)
    # Whoever opened the file to write has raised its epoch, so a backup of the same epoch has the same content.
    (epoch,) = read_meta(directory, options, "epoch")
    backup = directory.parent / f"format-{found}-{epoch}"
    if not (backup / MANIFEST).exists():
        shutil.rmtree(backup, ignore_errors=True)
        with closing(DirectoryTarget(backup)) as target:
            target.finish(back_up(options, target.write, _RATE_BYTES_S, store_format=found))
    receive(backup, fresh)
    return backup


def _apply(copy: StoreOptions, found: int, steps: Mapping[int, Step]) -> None:
    env = open_raw(Path(copy.directory), copy)
    try:
        meta = env.open_db(b"meta", create=False)
        with env.begin(write=True) as txn:
            for number in range(found, FORMAT_VERSION):
                steps[number](env, txn)
            txn.put(b"format", msgspec.msgpack.encode(FORMAT_VERSION), db=meta)
    finally:
        env.close()
