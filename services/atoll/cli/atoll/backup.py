"""`atoll backup` and `atoll restore`: copies of the store of a running shard, and stores made of them.

Called by `main`; the work is in `machinery.storage.maintenance`. Invariant: a backup is never written over another, and
a store is replaced only when that was asked, by a copy that was checked whole.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

from atoll.cli.atoll.output import fail
from atoll.cli.atoll.store import existing_store, options_of, store_parser
from atoll.machinery.meta import times
from atoll.machinery.storage.environment.filesystem import StoreInUse, UnsupportedFileSystem
from atoll.machinery.storage.environment.opening import UnknownFormat, WrongShard
from atoll.machinery.storage.maintenance.backup import RATE_BYTES_S, BackupFailed, back_up
from atoll.machinery.storage.maintenance.backup_files import ArchiveTarget, BadBackup, DirectoryTarget, Target, receive
from atoll.machinery.storage.maintenance.restore import StoreExists, listing_of
from atoll.machinery.storage.maintenance.restore import restore as restore_store
from atoll.machinery.storage.maintenance.rollback import NotRetained
from atoll.machinery.storage.options import MIB
from atoll.machinery.storage.sealing import KeyFileInvalid

_REFUSALS = (
    BackupFailed,
    BadBackup,
    KeyFileInvalid,
    NotRetained,
    StoreInUse,
    UnknownFormat,
    UnsupportedFileSystem,
    WrongShard,
    OSError,
)
#: The other processes of the machine come first.
_NICENESS = 10


def backup(arguments: Sequence[str]) -> int:
    """Copy a store beside its running shard. Exit code 0: the backup is whole."""
    parser = store_parser("backup", "Copy the store of a shard, running or not, at one revision.")
    parser.add_argument(
        "--to", required=True, metavar="DIRECTORY|-", help="a new directory; -: an archive to the output"
    )
    parser.add_argument(
        "--keys-to", default="", metavar="FILE", help="copy the sealing keys there: keep them elsewhere"
    )
    parser.add_argument(
        "--rate", type=int, default=RATE_BYTES_S // MIB, metavar="MIB", help="MiB a second at most (%(default)s)"
    )
    flags = parser.parse_args(list(arguments))
    options = existing_store(flags)
    if isinstance(options, int):
        return options
    if flags.rate < 1:
        return fail("--rate is at least 1")
    os.nice(_NICENESS)
    try:
        target: Target = ArchiveTarget(sys.stdout.buffer) if flags.to == "-" else DirectoryTarget(Path(flags.to))
        manifest = back_up(options, target.write, flags.rate * MIB)
        target.finish(manifest)
        if flags.keys_to:
            _copy_new(Path(options.key_file), Path(flags.keys_to))
    except FileExistsError as error:
        return fail(f"{error.filename} exists; no backup was made")
    except _REFUSALS as error:
        return fail(f"no backup was made: {error}")
    keys = f"; it takes the sealing keys {', '.join(map(str, manifest.sealing_keys))}" if manifest.sealing_keys else ""
    sys.stderr.write(f"revision {manifest.store.revision}, {manifest.size_bytes} bytes{keys}\n")
    return 0


def restore(arguments: Sequence[str]) -> int:
    """Make a store of a backup. Exit code 0: it is in place; 1: nothing was changed."""
    parser = store_parser("restore", "Make a store of a backup. The shard must be stopped.")
    parser.add_argument("--from", dest="source", required=True, metavar="DIRECTORY|ARCHIVE|-", help="-: from the input")
    parser.add_argument("--in-place", action="store_true", help="replace a store; its file stays as replaced-N.mdb")
    parser.add_argument(
        "--keys-from", default="", metavar="FILE", help="the sealing keys, where the directory has none"
    )
    moment = parser.add_mutually_exclusive_group()
    moment.add_argument("--to-revision", type=int, metavar="REVISION", help="as it was at an earlier revision")
    moment.add_argument(
        "--to-time", type=_revision_at, metavar="TIME", help="as it was at a time, as 2026-11-27T09:30:00Z"
    )
    flags = parser.parse_args(list(arguments))
    options, source = options_of(flags), _source(flags.source)
    wanted = flags.to_revision if flags.to_time is None else flags.to_time
    try:
        if flags.keys_from and not Path(options.key_file).exists():
            Path(options.key_file).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _copy_new(Path(flags.keys_from), Path(options.key_file))
        now_us = time.time_ns() // 1000
        result = restore_store(options, partial(receive, source), now_us, wanted, in_place=flags.in_place)
    except StoreExists:
        return fail(f"there is a store in {flags.root_directory}; --in-place replaces it, and keeps its file")
    except StoreInUse as error:
        return fail(f"{error}: stop it first; nothing was changed")
    except _REFUSALS as error:
        return fail(f"nothing was changed: {error}")
    sys.stdout.write(f"the store is at revision {result.revision}; {result.undone} later writes were undone\n")
    if result.replaced is not None:
        sys.stdout.write(f"the store that was there is in {result.replaced}\n{_newer(result.newer, result.replaced)}\n")
    return 0


def _newer(count: int | None, replaced: Path) -> str:
    if count is None:
        return "what was newer in it cannot be read"
    return f"{count} objects were newer in it, as {listing_of(replaced)} lists them"


def _source(text: str) -> Path | BinaryIO:
    return sys.stdin.buffer if text == "-" else Path(text)


def _revision_at(text: str) -> int:
    """Return the revision that was given out at a time: revisions are microseconds."""
    seconds = times.parse_time(text)
    if seconds is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write it as in 2026-11-27T09:30:00Z")
    return int(seconds * 1_000_000)


def _copy_new(source: Path, target: Path) -> None:
    """Copy a small file durably to a new one (0600). Raises FileExistsError."""
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(source.read_bytes())
        file.flush()
        os.fsync(file.fileno())
