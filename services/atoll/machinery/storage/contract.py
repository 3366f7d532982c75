"""The interface of a shard's store: mutations in, revisions out; snapshots, pages, cursors, a log.

Request handlers and controllers use it; `lmdb_store` implements it in the writer's process, `workers.worker_store` in
an API worker (own read transactions, mutations over a Unix socket). Both pass the same contract tests; no I/O here.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.storage.fencing import FencingToken
from atoll.machinery.storage.limits import Limit, TotalObjects, WithinLimits


class Operation(enum.IntEnum):
    """The kind of a log entry."""

    ADDED = 1
    MODIFIED = 2
    DELETED = 3
    MOVED = 4


class Flag(enum.IntFlag):
    """Facts the writer derives from an object's metadata and keeps in its `versions` row."""

    FINALIZERS = 1
    SEALED = 2
    DELETED = 4
    DELETING = 8  # metadata.deletionTimestamp is set
    OWNED = 16
    LABELLED = 32
    EXPIRES = 64


class GateState(enum.IntEnum):
    """Which requests a logical cluster admits; derived from its LogicalCluster in the same transaction."""

    CLOSED = 0  # no LogicalCluster: system:masters only
    INITIALIZING = 1
    OPEN = 2  # phase Ready or Terminating
    INACTIVE = 3
    DELETING = 4
    MOVING = 5


class Gate(msgspec.Struct, frozen=True):
    """A cluster's gate. `generation` is the revision that set this state, 0 without a row."""

    state: GateState = GateState.CLOSED
    generation: int = 0


class Put(msgspec.Struct, frozen=True, tag=True):
    """Write an object. `value` is `meta.objects.encode`'s bytes with the hole at `hole` zeroed.

    `expected` is the revision at which the author read the object; 0 means it must not exist.
    """

    key: ObjectKey
    value: bytes
    hole: int
    expected: int


class Delete(msgspec.Struct, frozen=True, tag=True):
    """Delete an object at revision `expected` (never 0); a `value` is put first, with a log entry of its own."""

    key: ObjectKey
    expected: int
    value: bytes = b""
    hole: int = 0


class Check(msgspec.Struct, frozen=True, tag=True):
    """Write nothing, but fail unless the object is at revision `expected` (0: is absent). A no-op write is this."""

    key: ObjectKey
    expected: int


class DeletePrefix(msgspec.Struct, frozen=True, tag=True):
    """Delete up to `limit` (at most 500) objects of a scope that have no finalizer, with a log entry each."""

    scope: Scope
    limit: int = 500


class Replica(msgspec.Struct, frozen=True, tag=True):
    """The state of one object as another shard, `origin`, published it. Writes no log entry and takes no revision.

    `value` is the object's JSON with its revision in it; empty: it was deleted. In the row's `generation` a higher
    revision replaces the row, in a later generation any revision does, in an earlier one none. (A generation is one
    full read of an origin.) Deleted objects leave no row, sealed types are never stored. Result: the apply count, or 0.
    """

    origin: str
    key: ObjectKey
    value: bytes
    revision: int
    generation: int


class SweepReplicas(msgspec.Struct, frozen=True, tag=True):
    """Delete the rows of an origin that are of an earlier generation, in bounded pieces, each durable by itself, before
    the rest of the submit whose first mutation it has to be. Result: rows deleted."""

    origin: str
    generation: int


class ClusterRoute(msgspec.Struct, frozen=True, tag=True):
    """Cluster `cluster` is on `shard`, so the rows of that origin are effective; "": its shard is unknown. Not applied
    where the route there is of a higher generation. Result as of `Replica`."""

    cluster: str
    shard: str
    generation: int = 0


class Mark(msgspec.Struct, frozen=True, tag=True):
    """Save a position in this transaction; `get_mark` returns it. `set_mark` writes other names. Result 0."""

    name: str
    value: bytes


Mutation = Put | Delete | Check | DeletePrefix | Replica | SweepReplicas | ClusterRoute | Mark


class NamespaceActive(msgspec.Struct, frozen=True, tag=True):
    """The namespace exists and carries no deletionTimestamp, after the mutations of this submit."""

    cluster: str
    namespace: str


class GateUnchanged(msgspec.Struct, frozen=True, tag=True):
    """The cluster's gate has the generation that admission read, before the mutations of this submit."""

    cluster: str
    generation: int


class RevisionUnchanged(msgspec.Struct, frozen=True, tag=True):
    """The object has this revision (0: is absent) before the mutations of this submit. Locks and references use it."""

    key: ObjectKey
    revision: int


class ClusterEmpty(msgspec.Struct, frozen=True, tag=True):
    """The cluster holds at most `but` objects after the mutations of this submit, so that none is left behind."""

    cluster: str
    but: int = 0


Guard = NamespaceActive | GateUnchanged | RevisionUnchanged | ClusterEmpty | WithinLimits | FencingToken


class Scope(msgspec.Struct, frozen=True):
    """The objects of a list or a watch. Empty cluster: every cluster (wildcard); empty namespace: all."""

    type: ResourceType
    cluster: str = ""
    namespace: str = ""


class Interest(msgspec.Struct, frozen=True):
    """What all changes wanted by a watch share beyond its scope: a name or one label, not both.

    It only filters wake-ups: a cursor still returns every change of its scope that it reads.
    """

    name: str = ""
    label: tuple[str, str] | None = None


EVERYTHING = Interest()


class Record(msgspec.Struct, frozen=True):
    """One object as clients get it: `value` holds its revision, and is unsealed if the type is sealed."""

    key: ObjectKey
    revision: int
    value: bytes
    flags: int = 0


class Position(msgspec.Struct, frozen=True, order=True):
    """A place in a list: the last item already sent. Continue tokens carry it."""

    cluster: str
    namespace: str
    name: str


class Page(msgspec.Struct, frozen=True):
    """One slice of a list, all at one revision.

    `after` is None on the last slice; `remaining` is the number of items behind the slice in the scope, or
    -1 where the count is not known cheaply. Order: cluster, namespace, name, bytewise.
    """

    revision: int
    values: list[bytes]
    after: Position | None
    remaining: int = -1


class Change(msgspec.Struct, frozen=True, gc=False):
    """One log entry with its images, for watches.

    `before` is the record before the write with its own revision in it (None for ADDED); `after` the record written,
    with `revision` in it; for DELETED `after` is the before-image with the deletion's revision. `previous` is the
    object's revision before (0: none); `previous_of_type` that of (cluster, type). `crc`, `sealed`: as in `LogEntry`.
    """

    revision: int
    operation: Operation
    key: ObjectKey
    before: bytes | None
    after: bytes
    previous: int = 0
    previous_of_type: int = 0
    crc: int = 0
    sealed: bool = False


class LogEntry(msgspec.Struct, frozen=True, gc=False):
    """One log entry for the publisher: `value` is the record as stored (sealed bytes stay sealed).

    For DELETED `value` is the before-image as stored. `crc` is CRC-32C of the value with its hole zeroed (of the sealed
    bytes where sealed). `before` is the before-image as stored, empty for ADDED and for replicas.
    """

    revision: int
    operation: Operation
    key: ObjectKey
    value: bytes
    sealed: bool
    crc: int
    previous: int
    previous_of_type: int
    before: bytes = b""


class Usage(msgspec.Struct, frozen=True):
    """One row of `clusters`: count and size of a cluster's objects of a type."""

    type: ResourceType
    count: int
    size_bytes: int
    last: int


class StoreIdentity(msgspec.Struct, frozen=True):
    """The identity of a store. `lineage` changes only when acknowledged history was lost; `epoch` at every open."""

    shard: str
    shard_uid: str
    lineage: str
    epoch: int


class StoreError(Exception):
    """Base of the six errors, the only ones that a store raises."""


class ObjectExists(StoreError):
    """A Put with expected 0 found the object."""

    def __init__(self, key: ObjectKey, revision: int) -> None:
        super().__init__(key, revision)
        self.key, self.revision = key, revision


class ObjectMissing(StoreError):
    """The object that a mutation expected is absent."""

    def __init__(self, key: ObjectKey) -> None:
        super().__init__(key)
        self.key = key


class RevisionConflict(StoreError):
    """The object is at another revision than expected."""

    def __init__(self, key: ObjectKey, expected: int, actual: int) -> None:
        super().__init__(key, expected, actual)
        self.key, self.expected, self.actual = key, expected, actual


class GuardFailed(StoreError):
    """A guard does not hold."""

    def __init__(self, guard: Guard) -> None:
        super().__init__(guard)
        self.guard = guard


class RevisionCompacted(StoreError):
    """The revision is no longer in the log, or not on this lineage. `oldest` is the first that is."""

    def __init__(self, revision: int, oldest: int) -> None:
        super().__init__(revision, oldest)
        self.revision, self.oldest = revision, oldest


class StoreFull(StoreError):
    """Disk or page quota is used up; deletes are still possible."""


class CorruptRecord(Exception):
    """A stored record fails its checksum or cannot be unsealed; no retry helps. The store has raised its alarm."""

    def __init__(self, key: ObjectKey, reason: str) -> None:
        super().__init__(key, reason)
        self.key, self.reason = key, reason


class Rows(Protocol):
    """Reads of objects by key, scope and label."""

    def get(self, key: ObjectKey) -> Record | None:
        """Return the current object, or None. Verify its CRC; raise CorruptRecord on a mismatch."""

    def revision_of(self, key: ObjectKey) -> int:
        """Return an object's revision without reading the value; 0 if absent."""

    def last(self, type: ResourceType, cluster: str) -> int:
        """Return the revision of the last change of a type in a cluster ("" for all), 0 if there was none."""

    def scan(self, scope: Scope, after: Position | None = None, limit: int = 500) -> list[Record]:
        """Return up to `limit` current objects of a scope behind `after`, in key order."""

    def revisions(self, scope: Scope, after: Position | None = None, limit: int = 500) -> list[tuple[ObjectKey, int]]:
        """Return keys and revisions of the objects of `scan` without reading them: to validate caches."""

    def labelled(
        self, label: str, value: str, type: ResourceType | None = None, limit: int = 0, after: ObjectKey | None = None
    ) -> list[ObjectKey]:
        """Return the objects with a system label pair, of one type if given, at most `limit` unless 0, as indexed.
        `after` continues. Admission guards system labels of some types only: pass one."""


class ReplicaView(Rows, Protocol):
    """Rows published by other shards about their clusters, in the transaction of the snapshot.

    A row is effective if its origin is the shard of its cluster's route. Methods return only effective rows, unless
    they say otherwise. Revisions are those of the origin. `last` is the local apply count of the last change: a cluster
    that moves to another shard changes in all its types, one without a route has 0, that of "" never falls.
    """

    @property
    def empty(self) -> bool:
        """Whether no cluster has a route, so that no row is effective."""

    @property
    def count(self) -> int:
        """The local apply count: the number of changes of replicas and routes so far. Never falls."""

    def shard_of(self, cluster: str) -> str: ...  # "" without a route
    def route_of(self, cluster: str) -> ClusterRoute | None: ...

    def rows_of(self, origin: str, scope: Scope, after: Position | None = None, limit: int = 500) -> list[Record]:
        """Return the rows of one origin, effective or not."""

    def row_of(self, origin: str, key: ObjectKey) -> tuple[Record, int] | None:
        """Return one object of an origin, effective or not, and its generation."""

    def types_of(self, origin: str, cluster: str) -> list[ResourceType]:
        """Return the types that an origin has rows of in a cluster, effective or not."""

    def outdated(
        self, origin: str, generation: int, after: ObjectKey | None = None, limit: int = 1000
    ) -> tuple[list[ObjectKey], ObjectKey | None]:
        """Return which of the next `limit` rows `SweepReplicas` would delete, and the last row read (None: the end)."""


class Snapshot(Rows, Protocol):
    """One read transaction. Short: never held across an await."""

    @property
    def revision(self) -> int:
        """The last revision committed."""

    transaction: int  # the number of the last one committed: snapshots with equal numbers are equal

    @property
    def replicas(self) -> ReplicaView:
        """The rows published by other shards."""

    def stamp(self, types: Sequence[ResourceType]) -> Hashable:
        """Return a value that is another one after each change of a type in any cluster, and of any replica."""

    def lasts(self, types: Sequence[ResourceType], cluster: str) -> tuple[int, ...]: ...  # `last` of each
    def gate(self, cluster: str) -> Gate: ...

    def usage(self, cluster: str) -> list[Usage]:
        """Return counts and sizes of a cluster's types, without types of count 0."""

    def limits(self, type: ResourceType, cluster: str, namespace: str) -> list[Limit]:
        """Return what quotas say of a type: of the namespace, if any, then of the whole cluster."""

    def limited(self, cluster: str) -> bool: ...
    def total(self, cluster: str) -> TotalObjects: ...

    def identities(self, group: str, resource: str) -> list[str]:
        """Return every identity under which objects of a resource were ever stored, sorted."""

    def owned(self, cluster: str, uid: str) -> list[ObjectKey]: ...  # those with an ownerReference to this uid
    def all_owned(self) -> Iterator[ObjectKey]: ...  # in all clusters; each once for each of its owners
    def under_deletion(self) -> Iterator[ObjectKey | None]:
        """Yield every object whose deletion has begun, in all clusters; None after each page of rows without one."""


class Cursor(Protocol):
    """A watch: a position in the log. Costs a number and a wake-up registration; close it."""

    @property
    def position(self) -> int:
        """Every change at or below it was read."""

    def read(self, limit: int = 500) -> Sequence[Change]:
        """Return the next changes in scope, in order, each once, and advance; cursors may share the sequence. Fewer
        than `limit`: all up to `position` were returned. Raise RevisionCompacted if compaction passed it."""

    async def wait(self, serve: Callable[[], bool] | None = None) -> None:
        """Return at a change in scope since the last read, or on `nudge`. `serve` goes first; true keeps waiting."""

    def nudge(self) -> None: ...  # makes a pending `wait` return, even without a change
    def close(self) -> None: ...


class LogCursor(Cursor, Protocol):
    """A cursor of the store itself. Many may be waited for at once: `attend` has `waiter` end where `wait` would
    return, until `leave`; false if that is now."""

    def attend(self, waiter: asyncio.Future[None]) -> bool: ...
    def leave(self) -> None: ...


class Store(Protocol):
    """One shard's data, in the writer's process and in API workers."""

    @property
    def identity(self) -> StoreIdentity: ...

    @property
    def list_window_s(self) -> int:
        """Seconds for which a past revision can be listed, and a continue token is valid."""

    def snapshot(self) -> AbstractContextManager[Snapshot]: ...

    async def submit(self, mutations: Sequence[Mutation], guards: Sequence[Guard] = ()) -> list[int]:
        """Apply all or nothing, in order, each key at most once. Return when durable.

        Return one revision a mutation: that of its log entry, 0 for Check, the number deleted for DeletePrefix; others
        document theirs. Raise one of the six errors; then nothing was done. Cancelling undoes no queued submit."""

    def queue(self, mutations: Sequence[Mutation], guards: Sequence[Guard] = ()) -> asyncio.Future[list[int]]:
        """Return the future of a `submit`. Raise StoreClosed at once, and ValueError for a repeated key."""

    def page(
        self,
        scope: Scope,
        *,
        at: int = 0,
        after: Position | None = None,
        limit: int = 0,
        size_bytes: int = 1 << 20,
        label: tuple[str, str] | None = None,
    ) -> Page:
        """Return a slice of a list at revision `at` (0: now); `limit` 0: bounded by size_bytes alone. Objects without
        `label` and its value may be left out. Raise RevisionCompacted inside a void, below the log, past the window."""

    def cursor(self, scope: Scope, revision: int, interest: Interest = EVERYTHING) -> LogCursor:
        """Watch a scope from behind `revision`, woken by changes of interest only. Raise RevisionCompacted."""

    def tail(self, revision: int, limit: int = 500) -> list[LogEntry]:
        """Return log entries above a revision, of all types, in order. Raise RevisionCompacted."""

    def change(self, revision: int) -> Change | None:
        """Return one log entry with both images, unsealed; None if it was compacted."""

    async def committed(self, revision: int) -> int:
        """Wait until the last committed revision is above `revision`. Return it."""

    async def replicated(self, count: int) -> int:
        """Wait until the local apply count of replicas and routes is above `count`. Return it."""
