"""What a shard's store promises, as types: mutations in, revisions out; snapshots, pages, cursors, a log.

The pipeline and every controller talk to these; `lmdb_store` implements them in the writer's process and `remote_store`
in an API worker (its own read transactions, mutations over a Unix socket). Both run the same contract suite. Nothing
here does I/O.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from atoll.machinery.meta.names import ObjectKey, ResourceType


class Operation(enum.IntEnum):
    """What a log entry did to its object."""

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
    """What a logical cluster admits; derived from its LogicalCluster in the same transaction."""

    CLOSED = 0  # no LogicalCluster: system:masters only
    INITIALIZING = 1
    OPEN = 2  # phase Ready or Terminating
    INACTIVE = 3
    DELETING = 4
    MOVING = 5


class Gate(msgspec.Struct, frozen=True):
    """A cluster's gate. `generation` is the revision that set this state, 0 where there is no row."""

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
    """Remove an object that stands at revision `expected` (never 0)."""

    key: ObjectKey
    expected: int


class Check(msgspec.Struct, frozen=True, tag=True):
    """Write nothing, but fail unless the object stands at `expected` (0: is absent). A no-op is this."""

    key: ObjectKey
    expected: int


class DeletePrefix(msgspec.Struct, frozen=True, tag=True):
    """Remove up to `limit` (at most 500) objects of a scope that have no finalizer, a log entry each."""

    scope: Scope
    limit: int = 500


class Replica(msgspec.Struct, frozen=True, tag=True):
    """What another shard, `origin`, says of one of its objects. Leaves no log entry and takes no revision.

    `value` is the object's JSON with its revision in it; empty: it is gone. The row takes a revision above its own, and
    in a `generation` (a reading of everything, they rise for each origin) above the row's any; of an earlier one
    nothing. Nobody remembers what is gone, and of a sealed type nothing is kept. The result is the apply count of the
    change, 0 where nothing changed.
    """

    origin: str
    key: ObjectKey
    value: bytes
    revision: int
    generation: int


class SweepReplicas(msgspec.Struct, frozen=True, tag=True):
    """Drop the rows of an origin that are of an earlier generation. Only as the first mutation of a submit.

    It goes in bounded pieces, each durable by itself, before the rest of the submit, which is one transaction. Its
    result is the number of rows dropped.
    """

    origin: str
    generation: int


class ClusterRoute(msgspec.Struct, frozen=True, tag=True):
    """A cluster lies on `shard`, so that rows of that origin count; "": it lies nowhere that is known.

    Not applied where the route there is of a higher generation. Result as of `Replica`.
    """

    cluster: str
    shard: str
    generation: int = 0


class Mark(msgspec.Struct, frozen=True, tag=True):
    """Save a position in this transaction; `get_mark` gives it. No name is written by `set_mark` too. Result 0."""

    name: str
    value: bytes


Mutation = Put | Delete | Check | DeletePrefix | Replica | SweepReplicas | ClusterRoute | Mark


class NamespaceActive(msgspec.Struct, frozen=True, tag=True):
    """The namespace exists and carries no deletionTimestamp, after the mutations of this submit."""

    cluster: str
    namespace: str


class GateUnchanged(msgspec.Struct, frozen=True, tag=True):
    """The cluster's gate still has the generation that admission saw, before the mutations of this submit."""

    cluster: str
    generation: int


class RevisionUnchanged(msgspec.Struct, frozen=True, tag=True):
    """An object still stands at this revision (0: is absent) before the mutations of this submit.

    Locks and references use it.
    """

    key: ObjectKey
    revision: int


class ClusterEmpty(msgspec.Struct, frozen=True, tag=True):
    """The cluster holds nothing any more after the mutations of this submit: what came meanwhile is not left behind."""

    cluster: str


Guard = NamespaceActive | GateUnchanged | RevisionUnchanged | ClusterEmpty


class Scope(msgspec.Struct, frozen=True):
    """What a list or a watch covers. Empty cluster: every cluster (wildcard); empty namespace: all."""

    type: ResourceType
    cluster: str = ""
    namespace: str = ""


class Interest(msgspec.Struct, frozen=True):
    """What all changes that a watch wants have in common beyond its scope: a name, or one label; not both.

    It decides who is woken, and nothing else: a cursor still gives every change of its scope that it comes across.
    """

    name: str = ""
    label: tuple[str, str] | None = None


EVERYTHING = Interest()


class Record(msgspec.Struct, frozen=True):
    """One object as it is served: `value` holds its revision, and is opened if the type is sealed."""

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


class Change(msgspec.Struct, frozen=True):
    """One log entry with its images, as watches need it.

    `before` is the record before the write with its own revision in it (None for ADDED); `after` the record written,
    with `revision` in it; for DELETED `after` is the before-image with the deletion's revision. `previous` is the
    object's revision before (0: none); `previous_of_type` that of (cluster, type). `crc` and `sealed` are those of the
    entry as it is published (`LogEntry`).
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


class LogEntry(msgspec.Struct, frozen=True):
    """One log entry for the publisher: `value` is the record as stored (sealed bytes stay sealed).

    For DELETED `value` is the before-image as stored. `crc` is CRC-32C of the value with its hole zeroed (of the sealed
    bytes where sealed).
    """

    revision: int
    operation: Operation
    key: ObjectKey
    value: bytes
    sealed: bool
    crc: int
    previous: int
    previous_of_type: int


class Usage(msgspec.Struct, frozen=True):
    """One row of `clusters`: what a cluster holds of a type."""

    type: ResourceType
    count: int
    size_bytes: int
    last: int


class StoreIdentity(msgspec.Struct, frozen=True):
    """Who this store is. `lineage` changes only when acknowledged history was lost; `epoch` at every open."""

    shard: str
    shard_uid: str
    lineage: str
    epoch: int


# --- errors: the only six a store raises -----------------------------------------------------------------


class StoreError(Exception):
    """Base of the six."""


class ObjectExists(StoreError):
    """A Put with expected 0 found the object."""

    def __init__(self, key: ObjectKey, revision: int) -> None:
        super().__init__(key, revision)
        self.key, self.revision = key, revision


class ObjectMissing(StoreError):
    """The object a mutation expected is not there."""

    def __init__(self, key: ObjectKey) -> None:
        super().__init__(key)
        self.key = key


class RevisionConflict(StoreError):
    """The object stands at another revision than expected."""

    def __init__(self, key: ObjectKey, expected: int, actual: int) -> None:
        super().__init__(key, expected, actual)
        self.key, self.expected, self.actual = key, expected, actual


class GuardFailed(StoreError):
    """A guard does not hold."""

    def __init__(self, guard: Guard) -> None:
        super().__init__(guard)
        self.guard = guard


class RevisionCompacted(StoreError):
    """The revision asked for is not in the log (any more, or on this lineage). `oldest` is the first."""

    def __init__(self, revision: int, oldest: int) -> None:
        super().__init__(revision, oldest)
        self.revision, self.oldest = revision, oldest


class StoreFull(StoreError):
    """Disk or page quota is used up; deletes still go."""


class CorruptRecord(Exception):
    """A stored record fails its checksum or does not open. Damage of one object, not an answer to a request.

    Not one of the six: no retry and no other request helps; the store has raised its alarm already.
    """

    def __init__(self, key: ObjectKey, reason: str) -> None:
        super().__init__(key, reason)
        self.key, self.reason = key, reason


class Rows(Protocol):
    """Objects as they are read by key, scope and label."""

    def get(self, key: ObjectKey) -> Record | None:
        """The object as it stands, or None. Verifies its CRC and raises CorruptRecord if it is bad."""

    def revision_of(self, key: ObjectKey) -> int:
        """Its revision without reading the value; 0 if absent."""

    def last(self, type: ResourceType, cluster: str) -> int:
        """Revision of the last change of a type in a cluster ("" for all); 0 if there never was one."""

    def scan(self, scope: Scope, after: Position | None = None, limit: int = 500) -> list[Record]:
        """Up to `limit` current objects of a scope behind `after`, in key order."""

    def revisions(self, scope: Scope, after: Position | None = None, limit: int = 500) -> list[tuple[ObjectKey, int]]:
        """What `scan` gives, without the objects, which are not read: for who keeps what it made of them."""

    def labelled(
        self, label: str, value: str, type: ResourceType | None = None, limit: int = 0, after: ObjectKey | None = None
    ) -> list[ObjectKey]:
        """Objects that carry an indexed system label pair, of one type if that is given, at most `limit` unless 0.

        They come in an order of their own, which goes on behind `after`.

        Anybody may put any label on objects that admission leaves alone, so that only a type makes sure what they are.
        """


class ReplicaView(Rows, Protocol):
    """What other shards published of their clusters, in the transaction of who gave this.

    Rows count if their origin is where their cluster's route leads; no others are given but where it is said. Revisions
    are those of the shard of origin. `last` is the local apply count of the last change: a cluster that comes to lie on
    another shard changes in all its types, one that is forgotten gives 0, "" never falls.
    """

    @property
    def empty(self) -> bool:
        """Whether no cluster is known to lie elsewhere, so that nothing counts."""

    @property
    def count(self) -> int:
        """The local apply count: how many changes of replicas and routes there were. Never falls."""

    def shard_of(self, cluster: str) -> str:
        """The shard that a cluster lies on, "" where none is known."""

    def route_of(self, cluster: str) -> ClusterRoute | None: ...

    def rows_of(self, origin: str, scope: Scope, after: Position | None = None, limit: int = 500) -> list[Record]:
        """What one origin sent, whether it counts or not."""

    def row_of(self, origin: str, key: ObjectKey) -> tuple[Record, int] | None:
        """One object as an origin sent it, whether it counts or not, and the generation that brought it."""

    def types_of(self, origin: str, cluster: str) -> list[ResourceType]:
        """The types of which an origin sent objects of a cluster, whether they count or not."""

    def outdated(
        self, origin: str, generation: int, after: ObjectKey | None = None, limit: int = 1000
    ) -> tuple[list[ObjectKey], ObjectKey | None]:
        """Which of the next `limit` rows `SweepReplicas` would drop, and behind which to go on (None: at the end)."""


class Snapshot(Rows, Protocol):
    """One read transaction. Short: never held across an await."""

    @property
    def revision(self) -> int:
        """The last revision committed."""

    @property
    def replicas(self) -> ReplicaView:
        """What other shards published."""

    def gate(self, cluster: str) -> Gate: ...

    def usage(self, cluster: str) -> list[Usage]:
        """What a cluster holds, types with count 0 left out."""

    def owned(self, cluster: str, uid: str) -> list[ObjectKey]:
        """Objects with an ownerReference to this uid."""

    def all_owned(self) -> Iterator[ObjectKey]:
        """Every object that has an owner, in all clusters; once for each of its owners."""


class Cursor(Protocol):
    """A watch: a position in the log. Costs a number and a wake-up registration; close it."""

    @property
    def position(self) -> int:
        """Everything at or below was read."""

    def read(self, limit: int = 500) -> list[Change]:
        """The next changes in scope, in order, none twice; advances. Fewer than `limit` (or none) means that
        all up to `position` were given. Raises RevisionCompacted if compaction passed the position."""

    async def wait(self) -> None:
        """Return once a commit touched the scope since the last read (at once if one already did), or on `nudge`."""

    def nudge(self) -> None:
        """Make a `wait` that is under way return, though nothing may be there to read."""

    def close(self) -> None: ...


class Store(Protocol):
    """One shard's data, as an API worker or the writer itself sees it."""

    @property
    def identity(self) -> StoreIdentity: ...

    @property
    def list_window_s(self) -> int:
        """How long a state that is no longer the current one can be listed, and a continue token lives."""

    def snapshot(self) -> AbstractContextManager[Snapshot]: ...

    async def submit(self, mutations: Sequence[Mutation], guards: Sequence[Guard] = ()) -> list[int]:
        """Apply all or nothing, in order, each key at most once; returns when durable.

        Gives one revision a mutation: that of its log entry, 0 for Check, the number deleted for DeletePrefix; what
        replicas and their like give, they say. Raises one of the six errors; then nothing of this submit was done.
        Cancelling the caller does not undo a submit that was queued.
        """

    def page(
        self, scope: Scope, *, at: int = 0, after: Position | None = None, limit: int = 0, size_bytes: int = 1 << 20
    ) -> Page:
        """A slice of a list at revision `at` (0: now). `limit` 0 means bounded by size_bytes alone.

        Raises RevisionCompacted for a revision inside a void, below the log, or past the list window.
        """

    def cursor(self, scope: Scope, revision: int, interest: Interest = EVERYTHING) -> Cursor:
        """Watch a scope from behind `revision`, woken only by what is of interest. Raises RevisionCompacted."""

    def tail(self, revision: int, limit: int = 500) -> list[LogEntry]:
        """Log entries above a revision, all types, in order. Raises RevisionCompacted."""

    async def committed(self, revision: int) -> int:
        """Wait until the last committed revision is above `revision`; give it."""

    async def replicated(self, count: int) -> int:
        """Wait until the local apply count of replicas and routes is above `count`; give it."""
