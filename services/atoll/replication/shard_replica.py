"""The rows of one followed shard: what its state stream brings, as `stream.state_consumer` hands it over.

Events become arrivals for the `projection`; what may not be taken is counted and left out. The mark and the number of
the generation lie in one row of `marks`, written with the rows they speak of. Invariant: a row is dropped for not
having been brought only by a generation that is known to be complete: one that brought nothing at all, or ends before
what was known of the same history, is not, whatever the stream's silence says.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

import msgspec
import structlog

from atoll.machinery.kcp.sharding.replication_level import may_hold
from atoll.machinery.meta.names import ObjectKey, ResourceType, is_cluster_name, is_system_cluster
from atoll.machinery.storage.contract import CorruptRecord, Mark, SweepReplicas
from atoll.machinery.stream.consumer.gaps import Gap
from atoll.machinery.stream.consumer.state_consumer import StateMark
from atoll.machinery.stream.events import Event, Operation
from atoll.replication.metrics import FOREIGN, LEVEL, MALFORMED, SEALED, SYSTEM
from atoll.replication.notifications import ReplicaChange
from atoll.replication.replica_writer import ReplicaWriter

log = structlog.get_logger()

#: Above every generation there is.
LAST_GENERATION = (1 << 63) - 1
_PAGE = 500


class ReplicaProgress(msgspec.Struct, frozen=True):
    """What is kept of a followed shard. `mark` is None while a generation is not complete; `lineage` is that of the
    last one that was, `floor` the revision that the present one must reach if it is of the same."""

    generation: int = 0
    mark: StateMark | None = None
    lineage: str = ""
    floor: int = 0


class Shortfall(enum.Enum):
    """Why a generation is not all there is, though the stream is silent."""

    NOT = ""
    EMPTY = "nothing is in its stream"
    OLDER = "its stream is older than what is held"


_kept = msgspec.json.Decoder(ReplicaProgress)


class _Metadata(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    namespace: str = ""


class _Named(msgspec.Struct, frozen=True, gc=False):
    metadata: _Metadata


_named = msgspec.json.Decoder(_Named)


class SourceShard(msgspec.Struct, frozen=True):
    """A shard that is followed, with the regions (empty: none) of both sides; `wanted` names what is kept of it."""

    name: str
    region: str = ""
    own_region: str = ""
    wanted: Callable[[ResourceType], bool] = lambda _: True

    @property
    def mark_name(self) -> str:
        return f"replication.{self.name}"


class ShardReplica:
    """`stream.state_consumer.StateApplication` over a projection."""

    def __init__(self, projection: ReplicaWriter, origin: SourceShard) -> None:
        self._projection, self._origin = projection, origin
        self._kept = self._load()
        #: How the present generation fell short when the stream fell silent; it is completed once it does no more.
        self._short = Shortfall.NOT
        self._told: set[str] = set()

    def _load(self) -> ReplicaProgress:
        data = self._projection.store.get_mark(self._origin.mark_name)
        try:
            return _kept.decode(data) if data else ReplicaProgress()
        except msgspec.DecodeError as error:
            log.error("unreadable mark of a followed shard", shard=self._origin.name, error=str(error))
            return ReplicaProgress()

    # --- what the consumer calls ---

    def mark(self) -> StateMark | None:
        return self._kept.mark

    async def begin(self, gap: Gap) -> None:
        kept, last = self._kept, self._kept.mark
        floor = kept.floor if gap is Gap.NEW else 0
        if gap is Gap.REWOUND and last is not None:
            # The stream lost its tail, which its shard writes again. Until then it is an older state of the same.
            floor = last.written
        lineage = last.lineage if last is not None else kept.lineage
        self._kept, self._short = ReplicaProgress(kept.generation + 1, None, lineage, floor), Shortfall.NOT
        # Before anything is read: a generation that was cut off must not share its number with the next.
        await self._projection.write([self._marked()])

    async def apply(self, events: list[Event], mark: StateMark | None) -> None:
        arrivals = [arrival for event in events if (arrival := self._arrival(event)) is not None]
        if mark is not None and self._short is Shortfall.NOT:
            self._keep(mark)
            await self._projection.take(self._origin.name, arrivals, [self._marked()])
            return
        await self._projection.take(self._origin.name, arrivals)
        if mark is not None and not self._is_short(mark):
            await self._complete(mark)

    async def sweep(self, mark: StateMark) -> None:
        if not mark.sequence:
            self._short = Shortfall.EMPTY
        elif self._is_older(mark):
            self._short = Shortfall.OLDER
        if self._short is not Shortfall.NOT and self._holds_earlier():
            log.warning("state of a shard falls short", shard=self._origin.name, reason=self._short.value)
        else:
            await self._complete(mark)

    async def forget(self) -> None:
        """Everything is to be read anew."""
        self._kept = ReplicaProgress(self._kept.generation, None, self._kept.lineage, self._kept.floor)
        await self._projection.write([self._marked()])

    async def drop(self) -> None:
        """Nothing of this shard is to be kept: it is a shard no more."""
        await self._sweep_below(LAST_GENERATION)
        origin = self._origin
        await self._projection.write([SweepReplicas(origin.name, LAST_GENERATION), Mark(origin.mark_name, b"")])

    # --- arrivals ---

    def _arrival(self, event: Event) -> ReplicaChange | None:
        assert event.key is not None
        reason = self._refused(event)
        if reason:
            self._refuse(reason)
            return None
        if not self._origin.wanted(event.key.type):
            return None
        arrival = ReplicaChange(event.key, self._value(event), event.revision, self._kept.generation)
        if self._kept.mark is not None or event.lineage != self._kept.lineage:
            return arrival
        return self._newest(arrival)

    def _refused(self, event: Event) -> str:
        assert event.key is not None
        if event.shard != self._origin.name:
            return FOREIGN
        if is_system_cluster(event.key.cluster):
            return SYSTEM
        if event.sealed:
            return SEALED
        return "" if is_cluster_name(event.key.cluster) and _is_of(event.key, event) else MALFORMED

    def _value(self, event: Event) -> bytes:
        """What is to be held of an object: nothing of what is gone, nor of what may not be held here (any more)."""
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
        self._projection.metrics.refused(self._origin.name, reason)
        if reason not in self._told:
            self._told.add(reason)
            log.warning("rows of another shard are refused", shard=self._origin.name, reason=reason)

    def _newest(self, arrival: ReplicaChange) -> ReplicaChange:
        """While everything is read again of the same history: what is held already if that is later."""
        with self._projection.store.snapshot() as snapshot:
            try:
                sent = snapshot.replicas.row_of(self._origin.name, arrival.key)
            except CorruptRecord:
                return arrival
        if sent is None or sent[0].revision <= arrival.revision:
            return arrival
        return arrival._replace(value=sent[0].value, revision=sent[0].revision)

    # --- generations ---

    def _is_short(self, mark: StateMark) -> bool:
        """Whether what was read by now still cannot be all: nothing was read but what was published since, of the same
        history (else the shard is another one, and begins now); or it is still an older state of it."""
        if self._short is Shortfall.EMPTY:
            return mark.lineage == self._kept.lineage or not self._kept.lineage
        return self._is_older(mark)

    def _is_older(self, mark: StateMark) -> bool:
        return mark.lineage == self._kept.lineage and mark.written < self._kept.floor

    def _holds_earlier(self) -> bool:
        with self._projection.store.snapshot() as snapshot:
            after: ObjectKey | None = None
            while True:
                found, after = snapshot.replicas.outdated(self._origin.name, self._kept.generation, after)
                if found or after is None:
                    return bool(found)

    async def _complete(self, mark: StateMark) -> None:
        generation = self._kept.generation
        await self._sweep_below(generation)
        self._keep(mark)
        self._short = Shortfall.NOT
        # What is dropped here came to be below meanwhile: nothing.
        await self._projection.write([SweepReplicas(self._origin.name, generation), self._marked()])

    async def _sweep_below(self, generation: int) -> None:
        """Have each row of an earlier generation leave as if its shard had said so: what follows from it does then."""
        after: ObjectKey | None = None
        while True:
            with self._projection.store.snapshot() as snapshot:
                keys, after = snapshot.replicas.outdated(self._origin.name, generation, after, _PAGE)
            await self._projection.take(self._origin.name, [ReplicaChange(key, b"", 0, generation) for key in keys])
            if after is None:
                return

    def _keep(self, mark: StateMark) -> None:
        self._kept = ReplicaProgress(self._kept.generation, mark, mark.lineage)

    def _marked(self) -> Mark:
        return Mark(self._origin.mark_name, msgspec.json.encode(self._kept))


def _is_of(key: ObjectKey, event: Event) -> bool:
    """Whether an event's object is the one that its key names.

    The store reads long names back from the object: one that says another name would lead a reader of pages astray.
    """
    if "\0" in key.name or "\0" in key.namespace:
        return False
    if event.operation is Operation.DELETED:
        return True
    try:
        metadata = _named.decode(event.payload).metadata
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return bool(key.name) and (metadata.name, metadata.namespace) == (key.name, key.namespace)
