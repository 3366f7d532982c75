"""What the publisher needs of a shard's log, as protocols.

The shard passes its store through an adapter; tests pass a log of their own. Siblings may not import each other, so
these repeat what the store promises in its contract. Invariant: values are bytes as stored, so a sealed record passes
through the stream without being opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from atoll.machinery.meta.names import ObjectKey, ResourceType

PAGE = 200


class LogIdentity(Protocol):
    """The identity of a store. `lineage` changes only when acknowledged history was lost, `epoch` at every open."""

    @property
    def shard(self) -> str: ...
    @property
    def shard_uid(self) -> str: ...
    @property
    def lineage(self) -> str: ...
    @property
    def epoch(self) -> int: ...


class LaterIdentity(msgspec.Struct, frozen=True):
    """The identity of a store whose process took a higher epoch than the opening gave it."""

    shard: str
    shard_uid: str
    lineage: str
    epoch: int

    @classmethod
    def after(cls, earlier: LogIdentity) -> LaterIdentity:
        """Return the identity with the next epoch."""
        return cls(earlier.shard, earlier.shard_uid, earlier.lineage, earlier.epoch + 1)


class SourceEntry(Protocol):
    """One log entry, or one standing object (then `operation` is ADDED and both previous ones are 0).

    `value` is the record as stored; of a delete, the record before it. `operation` is a number of
    `events.Operation`. `crc` is CRC-32C over the value with its hole zeroed, over all of it where sealed.
    """

    @property
    def revision(self) -> int: ...
    @property
    def operation(self) -> int: ...
    @property
    def key(self) -> ObjectKey: ...
    @property
    def value(self) -> bytes: ...
    @property
    def sealed(self) -> bool: ...
    @property
    def crc(self) -> int: ...
    @property
    def previous(self) -> int: ...
    @property
    def previous_of_type(self) -> int: ...


class LogSource(Protocol):
    """One shard's ordered log, its current objects, and a few marks in the same file."""

    @property
    def identity(self) -> LogIdentity: ...

    def floor(self) -> int:
        """The highest revision that compaction dropped; 0 if the log is whole."""

    def last(self) -> int:
        """The last committed revision; 0 in an empty store."""

    def tail(self, revision: int, limit: int) -> Sequence[SourceEntry]:
        """Up to `limit` entries above a revision, in order. May raise anything if `revision` is below the
        floor."""

    def holds(self, revision: int) -> bool:
        """Whether an entry has this very revision. False for one that compaction dropped."""

    def backlog(self, revision: int, limit: int) -> int:
        """How many entries stand above a revision, counted no further than `limit`."""

    def before(self, entry: SourceEntry) -> bytes | None:
        """The record that a log entry replaced, as stored; None for a create or a compacted entry."""

    def next_commit(self) -> asyncio.Future[None]:
        """A future of the next commit, which the caller may complete or cancel before."""

    def types(self) -> Sequence[ResourceType]:
        """Every type that objects stand under."""

    def standing(self, type: ResourceType, after: ObjectKey | None, limit: int) -> Sequence[SourceEntry]:
        """Up to `limit` current objects of a type in all clusters behind `after`, in key order."""

    def get_mark(self, name: str) -> bytes | None:
        """A mark, None if it was never set."""

    def set_mark(self, name: str, value: bytes) -> None:
        """Set a mark. May become durable later than the call, and be lost in a crash; never torn."""

    def set_published(self, revision: int) -> None:
        """Report to compaction how far both streams are. Lazily durable, like a mark."""


def standing_pages(log: LogSource, type: ResourceType) -> Iterator[Sequence[SourceEntry]]:
    """Yield the current objects of a type in key order, in pages of `PAGE`, each as it stands when it is read."""
    after: ObjectKey | None = None
    while True:
        page = log.standing(type, after, PAGE)
        yield page
        if len(page) < PAGE:
            return
        after = page[-1].key


class StreamPolicy(Protocol):
    """Which changes go to which stream. Configuration and kinds decide that, not the stream."""

    @property
    def state_version(self) -> str:
        """Another value than the one the state stream was filled under: it is filled again."""

    def published(self, type: ResourceType) -> bool:
        """Whether changes of this type go to the changes stream (Leases and Events do not, by default)."""

    def may_replicate(self, type: ResourceType) -> bool:
        """Whether objects of this type can ever be in the state stream. Cheap: asked for every entry."""

    def replicated(self, key: ObjectKey, value: bytes) -> bool:
        """Whether this very object is in the state stream. Asked only where `may_replicate` said yes."""
