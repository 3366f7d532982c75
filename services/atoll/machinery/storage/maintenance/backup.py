"""A copy of a store at one revision, taken beside its running writer, with a manifest that describes and proves it.

`atoll backup` calls it in a process of its own; `restore` reads what it wrote. LMDB writes the pages of one read
transaction into a pipe, without the free ones; they are passed on at a bounded pace. While it runs the writer cannot
use pages again that it frees, so its file may grow. Invariant: the manifest is written last, so what has one is whole.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import lmdb
import msgspec

from atoll.machinery.meta import times
from atoll.machinery.storage import sealing
from atoll.machinery.storage.environment.databases import FORMAT_VERSION, Environment
from atoll.machinery.storage.environment.opening import open_for_reading
from atoll.machinery.storage.options import MIB, StoreOptions

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Txn

BACKUP_FORMAT = 1
#: Between two chunks other processes get the core. With 1 MiB, writes of the shard beside it waited for 3 ms.
CHUNK_BYTES = 64 * 1024
#: A twentieth of what a disk of today writes: the shard goes on beside it.
RATE_BYTES_S = 50 * MIB


class StoreFacts(msgspec.Struct, frozen=True, rename="camel"):
    """What a store says of itself. `revision` is its last one, `compacted` how far its log reaches back."""

    shard: str
    shard_uid: str
    lineage: str
    epoch: int
    revision: int
    compacted: int


class Manifest(msgspec.Struct, frozen=True, rename="camel"):
    """What a backup holds. `sealing_keys` are the numbers of the keys that may seal records in it."""

    format: int
    store_format: int
    store: StoreFacts
    sealing_keys: tuple[int, ...]
    taken: str
    size_bytes: int
    sha256: str


class BackupFailed(Exception):
    """The copy could not be made; what was written has no manifest."""


def back_up(
    options: StoreOptions,
    write: Callable[[bytes], object],
    rate_bytes_s: int = RATE_BYTES_S,
    store_format: int = FORMAT_VERSION,
) -> Manifest:
    """Pass the pages of a store of a format to `write`; return their manifest.

    Raises UnknownFormat, KeyFileInvalid, BackupFailed, and what `write` raises.
    """
    with closing(_opened(options, store_format)) as environment, environment.reading() as txn:
        digest, size_bytes = hashlib.sha256(), 0
        for chunk in _paced(_pages(environment, txn), rate_bytes_s):
            digest.update(chunk)
            size_bytes += len(chunk)
            write(chunk)
        has_keys = bool(environment.sealed_types(txn)) and options.key_file
        numbers = sealing.numbers(Path(options.key_file)) if has_keys else ()
        return Manifest(
            format=BACKUP_FORMAT,
            store_format=store_format,
            store=facts_of(environment, txn),
            sealing_keys=numbers,
            taken=times.now(),
            size_bytes=size_bytes,
            sha256=digest.hexdigest(),
        )


def _opened(options: StoreOptions, store_format: int) -> Environment:
    try:
        return open_for_reading(options, store_format)
    except lmdb.Error as error:
        raise BackupFailed(f"the store cannot be opened: {error}") from error


def facts_of(environment: Environment, txn: Txn) -> StoreFacts:
    """Return what a store says of itself in a transaction."""
    read = environment.get_meta
    return StoreFacts(
        shard=read(txn, "shard", ""),
        shard_uid=read(txn, "shard_uid", ""),
        lineage=read(txn, "lineage", ""),
        epoch=read(txn, "epoch", 0),
        revision=environment.last(txn),
        compacted=environment.compacted(txn),
    )


def _pages(environment: Environment, txn: Txn) -> Iterator[bytes]:
    """Yield the file that holds the transaction's state and nothing else."""
    read_end, write_end = os.pipe()
    failures: list[Exception] = []

    def copy() -> None:
        try:
            environment.env.copyfd(write_end, compact=True, txn=txn)
        except Exception as error:
            failures.append(error)
        finally:
            os.close(write_end)

    copying = threading.Thread(target=copy, name="backup")
    copying.start()
    try:
        with os.fdopen(read_end, "rb", buffering=CHUNK_BYTES) as pipe:
            while chunk := pipe.read(CHUNK_BYTES):
                yield chunk
    finally:
        # With the reading end closed, LMDB stops at its next write.
        copying.join()
    if failures:
        raise BackupFailed(f"the store cannot be copied: {failures[0]}") from failures[0]


def _paced(chunks: Iterator[bytes], rate_bytes_s: int) -> Iterator[bytes]:
    began_s, passed = time.monotonic(), 0
    for chunk in chunks:
        yield chunk
        passed += len(chunk)
        time.sleep(max(0.0, began_s + passed / rate_bytes_s - time.monotonic()))
