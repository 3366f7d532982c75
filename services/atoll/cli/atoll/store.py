"""`atoll fsck`, `rotate`, `mark-restored` and `compact`: maintenance of the store of a root directory.

Called by `main`; the work is in `machinery.storage`. Invariant: a store that does not exist is never created, and that
of a running shard is changed by the shard alone.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from atoll.cli.atoll.output import fail
from atoll.machinery.process import config, logging
from atoll.machinery.process.file_watch import CHECK_EVERY_S
from atoll.machinery.storage import sealing
from atoll.machinery.storage.environment.filesystem import DATA_FILE, StoreInUse, UnsupportedFileSystem
from atoll.machinery.storage.environment.opening import UnknownFormat, WrongShard
from atoll.machinery.storage.lmdb_store import open_store
from atoll.machinery.storage.maintenance import fsck as checking
from atoll.machinery.storage.maintenance import offline
from atoll.machinery.storage.maintenance import repair as repairing
from atoll.machinery.storage.maintenance.key_use import (
    KeyInUse,
    KeyNotReplaced,
    drop_key,
    drop_key_of_running,
    sealed_by_earlier,
)
from atoll.machinery.storage.options import StoreOptions
from atoll.machinery.storage.sealing import KeyFileInvalid
from atoll.shard.config import ShardConfig
from atoll.standalone.runner import store_options

_REFUSALS = (StoreInUse, UnsupportedFileSystem, UnknownFormat, WrongShard, KeyFileInvalid, OSError)
#: Limit of printed problems; the total is always printed.
MAX_PRINTED = 100
#: A running shard that re-seals nothing for so long is not waited for.
_SILENT_S = 60.0


def fsck(arguments: Sequence[str]) -> int:
    """Check every database of a store against the others, and every checksum. Exit code 0: sound; 1: damaged or
    unreadable.

    A running shard is not disturbed; its last commit is checked. With `--repair` the shard must be stopped.
    """
    parser = store_parser("fsck", "Check a store against itself; without --repair it changes nothing.")
    parser.add_argument(
        "--repair",
        action="store_true",
        help="repair the store of a stopped shard: write indexes, counters and gates anew, set damaged objects aside "
        "in a file; the store as it was stays beside the repaired one",
    )
    flags = parser.parse_args(list(arguments))
    options = existing_store(flags)
    if isinstance(options, int):
        return options
    if flags.repair:
        return _repair(options)
    try:
        problems = checking.fsck(options)
    except Exception as error:
        # A damaged file may raise any exception.
        return fail(f"the store cannot be read: {error}")
    for problem in problems[:MAX_PRINTED]:
        sys.stdout.write(f"{problem.where} {problem.key}: {problem.what}\n")
    sys.stdout.write(f"{len(problems)} problems\n" if problems else "the store is sound\n")
    return 1 if problems else 0


def _repair(options: StoreOptions) -> int:
    logging.configure("error")
    try:
        result = repairing.repair(options, time.time_ns() // 1000)
    except StoreInUse as error:
        return fail(f"{error}: stop it first; nothing was changed")
    except Exception as error:
        # Damaged pages may raise any exception.
        return fail(f"the store cannot be repaired: {error}; nothing was changed: restore a backup")
    if result is None:
        sys.stdout.write("the store is sound; nothing was changed\n")
        return 0
    for each in result.damaged[:MAX_PRINTED]:
        name = "/".join(filter(None, (each.cluster, each.namespace, each.name)))
        sys.stdout.write(f"set aside: {each.resource} {name}: {each.why}\n")
    history = "; history was dropped, and clients read everything again" if result.log_dropped else ""
    sys.stdout.write(f"{result.problems} problems repaired, {len(result.damaged)} objects set aside{history}\n")
    sys.stdout.write(f"the store as it was is in {result.replaced}\n")
    return 0


def rotate(arguments: Sequence[str]) -> int:
    """Add a sealing key, make it the primary one and re-seal every sealed object; or drop an unused key.

    A running shard re-seals its objects by itself, and this waits for it. It drops no key that anything is sealed with.
    """
    parser = store_parser("rotate", "Add a sealing key and re-seal all sealed objects. The shard may run.")
    parser.add_argument("--drop", type=int, metavar="KEYID", help="remove a key that seals nothing any more")
    flags = parser.parse_args(list(arguments))
    options = existing_store(flags)
    if isinstance(options, int):
        return options
    logging.configure("warning")
    try:
        return asyncio.run(_rotate(options)) if flags.drop is None else _drop(options, flags.drop)
    except _REFUSALS as error:
        return fail(str(error))


def _drop(options: StoreOptions, number: int) -> int:
    try:
        try:
            drop_key(options, number, time.time_ns() // 1000)
        except StoreInUse:
            drop_key_of_running(options, number)
    except KeyNotReplaced as error:
        return fail(f"{error}; no key was dropped. It reads its keys within seconds: look at its log")
    except KeyInUse as error:
        return fail(
            f"{error}; no key was dropped. `atoll rotate` re-seals objects; "
            "log entries go with the log retention of the running shard"
        )
    sys.stdout.write(f"key {number} is dropped; copies of the store and streams may hold records under it\n")
    return 0


async def _rotate(options: StoreOptions) -> int:
    try:
        store = open_store(options)
    except StoreInUse:
        return await asyncio.to_thread(_rotate_running, options)
    try:
        number = sealing.add_key(Path(options.key_file))
        changed = await store.reseal()
    finally:
        await store.close()
    sys.stdout.write(f"key {number} seals from now on; {changed} objects were re-sealed\n")
    sys.stdout.write("older keys stay for log and streams; `atoll rotate --drop KEYID` removes one\n")
    return 0


def _rotate_running(options: StoreOptions) -> int:
    """Add a key, unless objects are still to be sealed with the last one, and wait for the shard to do that."""
    left, heard_s = sealed_by_earlier(options), time.monotonic()
    if not left:
        sys.stdout.write(f"key {sealing.add_key(Path(options.key_file))} seals from now on\n")
        left = sealed_by_earlier(options)
    while left:
        time.sleep(CHECK_EVERY_S)
        before, left = left, sealed_by_earlier(options)
        heard_s = time.monotonic() if left < before else heard_s
        if time.monotonic() - heard_s > _SILENT_S:
            return fail(f"{left} objects are sealed with earlier keys; the shard re-seals them: look at its log")
    sys.stdout.write("all objects are sealed with it\n")
    sys.stdout.write("older keys stay for log and streams; `atoll rotate --drop KEYID` removes one\n")
    return 0


def mark_restored(arguments: Sequence[str]) -> int:
    """Give a store that was restored from a backup a new lineage. The shard must be stopped."""
    text = "Mark a store as restored from a backup: consumers and other shards then read all objects again."
    return _offline("mark-restored", text, arguments, offline.mark_restored, "the store has a new lineage")


def compact(arguments: Sequence[str]) -> int:
    """Rewrite the file without its free pages. The shard must be stopped."""
    text = "Rewrite the file of a store without its free pages. Needs as much free space as the store uses."
    return _offline("compact", text, arguments, offline.compact_file, "the file holds no free pages")


def _offline(
    command: str, text: str, arguments: Sequence[str], work: Callable[[StoreOptions, int], None], result: str
) -> int:
    """Run work on the store of a stopped shard; `result` is printed after it."""
    options = existing_store(store_parser(command, f"{text} Stop the shard before.").parse_args(list(arguments)))
    if isinstance(options, int):
        return options
    try:
        work(options, time.time_ns() // 1000)
    except StoreInUse as error:
        return fail(f"{error}: stop it first; nothing was changed")
    except _REFUSALS as error:
        return fail(str(error))
    sys.stdout.write(f"{result}\n")
    return 0


def store_parser(command: str, text: str) -> argparse.ArgumentParser:
    """Return a parser of the flags that name a store."""
    defaults = ShardConfig()
    parser = argparse.ArgumentParser(prog=f"atoll {command}", description=text, allow_abbrev=False)
    parser.add_argument("--root-directory", default=defaults.root_directory, metavar="DIRECTORY")
    parser.add_argument("--shard-name", default=defaults.shard_name, metavar="NAME")
    parser.add_argument(
        "--allow-any-filesystem", action="store_true", help=config.description(ShardConfig, "allow_any_filesystem")
    )
    return parser


def options_of(flags: argparse.Namespace) -> StoreOptions:
    """Return the options of the store that the flags name."""
    return store_options(
        ShardConfig(
            root_directory=flags.root_directory,
            shard_name=flags.shard_name,
            allow_any_filesystem=flags.allow_any_filesystem,
        )
    )


def existing_store(flags: argparse.Namespace) -> StoreOptions | int:
    """Return the options of the store that the flags name, or the exit code if it does not exist."""
    options = options_of(flags)
    if not (Path(options.directory) / DATA_FILE).exists():
        return fail(f"there is no store in {flags.root_directory}")
    return options
