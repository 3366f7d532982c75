"""The configuration of a store: one frozen value, read by every part of the package.

The process that opens the store fills it from its own configuration. Types with a special treatment (sealed, expiring,
writable when full) and the labels that the system selects by are named here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from atoll.machinery.meta import hashes
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.types import EVENTS, LEASES

#: kcp's label keys that virtual workspaces select by and bindings are found by, and ours by which paths are.
SYSTEM_LABEL_PREFIXES = (
    hashes.CLAIM_LABEL_PREFIX,
    hashes.EXPORT_LABEL,
    hashes.INITIALIZER_LABEL_PREFIX,
    hashes.TERMINATOR_LABEL_PREFIX,
    "paths.internal.atoll.dev/",
)

MIB = 1 << 20


class Expiring(msgspec.Struct, frozen=True):
    """Objects of a type that are deleted `ttl_s` seconds after their last write."""

    type: ResourceType
    ttl_s: int


@lru_cache(maxsize=16)
def lifetimes_us(expiring: tuple[Expiring, ...]) -> Mapping[ResourceType, int]:
    """Return the lifetime of each type in microseconds."""
    return {each.type: each.ttl_s * 1_000_000 for each in expiring}


class StoreOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a store. Sizes in bytes, times in seconds."""

    directory: str
    shard: str = "root"
    #: Address space, not disk: sparse, the same in all processes, never resized.
    map_size_bytes: int = 1 << 40
    #: Accept network and temporary file systems (tests, throw-away servers).
    allow_any_filesystem: bool = False
    #: All that it holds is read elsewhere, so a file of an earlier format is replaced by an empty one.
    replica: bool = False
    #: Bytes of used pages above which creates and updates are refused; 0: only free disk counts.
    quota_bytes: int = 0
    #: Free bytes kept for deletes and compaction.
    reserve_bytes: int = 256 * MIB
    #: Objects that a Ready logical cluster may hold, Events aside; 0: any number. A LogicalCluster may say otherwise.
    total_object_limit: int = 0
    always_writable: tuple[ResourceType, ...] = (LEASES,)
    ring_bytes: int = 64 * MIB
    log_retention_s: int = 24 * 3600
    log_retention_bytes: int = 4 << 30
    list_window_s: int = 300
    sealed_types: tuple[ResourceType, ...] = ()
    #: JSON file of sealing keys; needed as soon as a type is sealed.
    key_file: str = ""
    system_label_prefixes: tuple[str, ...] = SYSTEM_LABEL_PREFIXES
    expiring: tuple[Expiring, ...] = (Expiring(EVENTS, 3600),)
    #: Commit in a thread; None lets a measurement of the disk at start-up decide.
    commit_in_thread: bool | None = None
    max_batch_submits: int = 128
    #: Submits and bytes that may wait for the writer; more wait before they are taken.
    max_queued_submits: int = 1024
    max_queued_bytes: int = 64 * MIB
    #: Pause between two rounds of compaction, expiry and reader checks.
    maintenance_interval_s: float = 30.0
