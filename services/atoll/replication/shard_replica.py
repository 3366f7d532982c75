"""The replica of one followed shard, fed by its state stream.

`stream.consumer.state_consumer` calls it; its changes go to the `replica_writer`. Events that may not be taken are
counted and left out. The mark and the number of the generation are one row of `marks`, written with the rows they
cover. Invariant: a row is dropped for being absent only by a generation that is known to be complete. A generation
that brought nothing, or ends before a revision already seen of the same history, is not complete, however silent the
stream is.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator

import msgspec
import structlog

from atoll.machinery.kcp.sharding.replication_level import may_hold
from atoll.machinery.kcp.sharding.stream_policy import OF_SHARDS
from atoll.machinery.meta import partial
from atoll.machinery.meta.names import SYSTEM_SHARD, ObjectKey, is_cluster_name, is_system_cluster
from atoll.machinery.storage.contract import CorruptRecord, Mark, SweepReplicas
from atoll.machinery.stream.consumer.gaps import Gap
from atoll.machinery.stream.consumer.state_consumer import StateMark
from atoll.machinery.stream.events import Event, Operation
from atoll.replication.metrics import FOREIGN, FORGOTTEN, LEVEL, MALFORMED, SEALED, SYSTEM
from atoll.replication.notifications import ReplicaChange
from atoll.replication.replica_writer import ReplicaWriter

log = structlog.get_logger()

#: Above every generation.
LAST_GENERATION = (1 << 63) - 1
_PAGE = 500
#: Keys that one log line names.
_NAMED = 20
_OF_SHARDS = frozenset((SYSTEM_SHARD, type) for type in OF_SHARDS)


class ReplicaProgress(msgspec.Struct, frozen=True):
    """The stored progress. `mark` is None while a generation is not complete; `lineage` is that of the last complete
    one, `floor` the revision that the present one must reach if its lineage is the same."""

    generation: int = 0
    mark: StateMark | None = None
    lineage: str = ""
    floor: int = 0


class Shortfall(enum.Enum):
    """Why a generation is not complete although the stream is silent."""

    NONE = ""
    EMPTY = "its stream is empty"
    OLDER = "its stream is older than the replica"


_progress_decoder = msgspec.json.Decoder(ReplicaProgress)


class SourceShard(msgspec.Struct, frozen=True):
    """A followed shard, with the regions of both sides ("": none); `wanted` selects the objects that are kept,
    `forgotten` tells stores whose events count for nothing."""

    name: str
    region: str = ""
    own_region: str = ""
    wanted: Callable[[ObjectKey], bool] = lambda _: True
    forgotten: Callable[[str], bool] = lambda _: False

    @property
    def mark_name(self) -> str:
        return f"replication.{self.name}"


_OF_SHARDS = frozenset((SYSTEM_SHARD, type) for type in OF_SHARDS)


class ShardReplica:
    """A `stream.consumer.state_consumer.StateSink` over the replica writer."""

    def __init__(self, writer: ReplicaWriter, origin: SourceShard) -> None:
        self._writer, self._origin = writer, origin
        self._progress = self._load()
        #: Why the present generation was not complete when the stream fell silent. It is completed later.
        self._short = Shortfall.NONE
        self._logged: set[str] = set()

    def _load(self) -> ReplicaProgress:
        data = self._writer.store.get_mark(self._origin.mark_name)
        try:
            return _progress_decoder.decode(data) if data else ReplicaProgress()
        except msgspec.DecodeError as error:
            log.error("replica mark unreadable", shard=self._origin.name, error=str(error))
            return ReplicaProgress()

    # --- what the consumer calls ---

    def mark(self) -> StateMark | None:
        return self._progress.mark

    async def begin(self, gap: Gap) -> None:
        progress, last = self._progress, self._progress.mark
        floor = progress.floor if gap is Gap.NEW else 0
        if gap is Gap.REWOUND and last is not None:
            # The stream lost its tail, which its shard publishes again. Until then it holds an older state.
            floor = last.written
        lineage = last.lineage if last is not None else progress.lineage
        self._progress, self._short = ReplicaProgress(progress.generation + 1, None, lineage, floor), Shortfall.NONE
        # Before anything is read: an interrupted generation must not share its number with the next.
        await self._writer.write([self._marked()])

    async def apply(self, events: list[Event], mark: StateMark | None) -> None:
        changes = [change for event in events if (change := self._change(event)) is not None]
        if mark is not None and self._short is Shortfall.NONE:
            self._keep(mark)
            await self._writer.apply(self._origin.name, changes, [self._marked()])
            return
        await self._writer.apply(self._origin.name, changes)
        if mark is not None and not self._is_short(mark):
            await self._complete(mark)

    async def sweep(self, mark: StateMark) -> None:
        if not mark.sequence:
            self._short = Shortfall.EMPTY
        elif self._is_older(mark):
            self._short = Shortfall.OLDER
        if self._short is not Shortfall.NONE and self._holds_earlier():
            log.warning("replica stream incomplete", shard=self._origin.name, reason=self._short.value)
        else:
            await self._complete(mark)

    async def forget(self) -> None:
        """Forget the mark: read everything again."""
        self._progress = ReplicaProgress(self._progress.generation, None, self._progress.lineage, self._progress.floor)
        await self._writer.write([self._marked()])

    async def drop(self) -> None:
        """Drop every row of a shard that no longer exists."""
        await self._sweep_below(LAST_GENERATION)
        origin = self._origin
        await self._writer.write([SweepReplicas(origin.name, LAST_GENERATION), Mark(origin.mark_name, b"")])

    # --- changes ---

    def _change(self, event: Event) -> ReplicaChange | None:
        assert event.key is not None
        reason = self._refusal(event)
        if reason:
            self._refuse(reason)
            return None
        if not self._origin.wanted(event.key):
            return None
        value = self._value(event)
        withheld = not value and event.operation is not Operation.DELETED
        change = ReplicaChange(event.key, value, event.revision, self._progress.generation, withheld)
        if self._progress.mark is not None or event.lineage != self._progress.lineage:
            return change
        return self._newest(change)

    def _refusal(self, event: Event) -> str:
        assert event.key is not None
        if event.shard != self._origin.name:
            return FOREIGN
        if self._origin.forgotten(event.shard_uid):
            return FORGOTTEN
        if is_system_cluster(event.key.cluster) and (event.key.cluster, event.key.type) not in _OF_SHARDS:
            return SYSTEM
        if event.sealed:
            return SEALED
        return "" if is_cluster_name(event.key.cluster) and _is_of(event.key, event) else MALFORMED

    def _value(self, event: Event) -> bytes:
        """The value to hold: empty for a deleted object, and for one that may not be held here (any more)."""
        if event.operation is Operation.DELETED:
            return b""
        try:
            allowed = may_hold(event.payload, self._origin.region, self._origin.own_region)
        except (msgspec.DecodeError, UnicodeDecodeError):
            allowed = False
        if not allowed:
            self._refuse(LEVEL)
        return event.payload if allowed else b""

    def _refuse(self, reason: str) -> None:
        self._writer.metrics.refused(self._origin.name, reason)
        if reason not in self._logged:
            self._logged.add(reason)
            log.warning("replica rows refused", shard=self._origin.name, reason=reason)

    def _newest(self, change: ReplicaChange) -> ReplicaChange:
        """The change, or the row already held if that is later: the same history is being read again."""
        with self._writer.store.snapshot() as snapshot:
            try:
                row = snapshot.replicas.row_of(self._origin.name, change.key)
            except CorruptRecord:
                return change
        if row is None or row[0].revision <= change.revision:
            return change
        return change._replace(value=row[0].value, revision=row[0].revision, withheld=False)

    # --- generations ---

    def _is_short(self, mark: StateMark) -> bool:
        """Whether the generation is still incomplete: all it brought was published since, of the same history (with
        another lineage the shard is a different one, and begins here); or it is still an older state."""
        if self._short is Shortfall.EMPTY:
            return mark.lineage == self._progress.lineage or not self._progress.lineage
        return self._is_older(mark)

    def _is_older(self, mark: StateMark) -> bool:
        return mark.lineage == self._progress.lineage and mark.written < self._progress.floor

    def _outdated(self, generation: int) -> Iterator[list[ObjectKey]]:
        """Yield pages of the keys of rows of earlier generations."""
        after: ObjectKey | None = None
        while True:
            with self._writer.store.snapshot() as snapshot:
                keys, after = snapshot.replicas.outdated(self._origin.name, generation, after, _PAGE)
            yield keys
            if after is None:
                return

    def _holds_earlier(self) -> bool:
        return any(self._outdated(self._progress.generation))

    async def _complete(self, mark: StateMark) -> None:
        generation = self._progress.generation
        count, first = await self._sweep_below(generation)
        if count and self._progress.lineage not in {"", mark.lineage}:
            named = [f"{key.type.resource}.{key.type.group} {key.cluster}|{key.name}" for key in first]
            log.warning("replica rows that a restored shard lacks", shard=self._origin.name, rows=count, first=named)
        self._keep(mark)
        self._short = Shortfall.NONE
        # The pages above left nothing to drop here.
        await self._writer.write([SweepReplicas(self._origin.name, generation), self._marked()])

    async def _sweep_below(self, generation: int) -> tuple[int, list[ObjectKey]]:
        """Delete each row of an earlier generation as if its shard had, so that owners and listeners follow.

        Return how many these were, and some of their keys.
        """
        count, first = 0, list[ObjectKey]()
        for keys in self._outdated(generation):
            first += keys[: _NAMED - len(first)]
            count += len(keys)
            await self._writer.apply(self._origin.name, [ReplicaChange(key, b"", 0, generation) for key in keys])
        return count, first

    def _keep(self, mark: StateMark) -> None:
        self._progress = ReplicaProgress(self._progress.generation, mark, mark.lineage)

    def _marked(self) -> Mark:
        return Mark(self._origin.mark_name, msgspec.json.encode(self._progress))


def _is_of(key: ObjectKey, event: Event) -> bool:
    """Whether an event's object has the name that its key has.

    The store reads long names back from the object: a different name there would misplace a reader of pages.
    """
    if "\0" in key.name or "\0" in key.namespace:
        return False
    if event.operation is Operation.DELETED:
        return True
    try:
        metadata = partial.name(event.payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return bool(key.name) and (metadata.name, metadata.namespace) == (key.name, key.namespace)
