"""Follows the other shards of a site: `root`, and those that have a Shard object there.

A shard, a front proxy and a cache server each run one over their store. Each followed shard has a consumer of its
state stream, with a connection of its own. A new shard is followed at once; one whose Shard object is gone is dropped
with its rows. A process without configured root types learns them from root's rows. Invariant: a shard never follows
itself, nor a shard whose Shard object did not come from root.
"""

from __future__ import annotations

import asyncio
import functools
import secrets
from collections.abc import Callable, Sequence

import msgspec
import structlog
from prometheus_client import CollectorRegistry

from atoll.machinery.kcp.sharding.forgotten_stores import StoreForgotten, forgotten_stores
from atoll.machinery.kcp.sharding.ownership import ROOT_SHARD
from atoll.machinery.kcp.sharding.shards import STORE
from atoll.machinery.meta import partial
from atoll.machinery.meta.names import ROOT, ObjectKey, ResourceType
from atoll.machinery.meta.objects import decode
from atoll.machinery.meta.types import API_EXPORTS, LOGICAL_CLUSTERS, is_copy
from atoll.machinery.process.backoff import Backoff
from atoll.machinery.storage.contract import Mark, Record, ReplicaView, Scope
from atoll.machinery.stream.connection import Access
from atoll.machinery.stream.consumer.selection import Selection
from atoll.machinery.stream.consumer.state_consumer import CannotSelect, ConsumerOptions, StateConsumer, may_select
from atoll.machinery.stream.contention import ONE_USER_EACH
from atoll.machinery.stream.permissions import follower_consumer
from atoll.machinery.stream.subjects import STATE, all_subjects, is_shard_name
from atoll.replication.metrics import ReplicationMetrics
from atoll.replication.needed_copies import NeededCopies, SelectedCopies
from atoll.replication.needed_rows import NeededRows, whole_filters
from atoll.replication.notifications import ReplicaListener
from atoll.replication.readable_pages import readable
from atoll.replication.replica_writer import OWNERS_PENDING, MarkStore, ReplicaWriter
from atoll.replication.root_types import RootTypes, learn_root_types
from atoll.replication.shard_keys import KEYS_MARK, ShardKeys, announced_keys
from atoll.replication.shard_replica import ShardReplica, SourceShard
from atoll.replication.sought_clusters import SoughtClusters
from atoll.replication.sought_paths import Site, SoughtPaths

log = structlog.get_logger()

#: Names of the shards followed last, so that one removed during a restart is found.
FOLLOWED = "replication.followed"
#: The uids of stores that were struck off. None is ever taken back.
FORGOTTEN_STORES = "replication.forgotten-stores"
#: Set where of Workspaces and LogicalClusters only those needed are held.
NEEDED_ONLY = "replication.needed-only"
#: The most shards of a site.
MAX_SHARDS = 1000
#: Rows of one transaction; requests wait for it.
_BATCH = 200
_BACKOFF = Backoff(0.1, 30.0)
_DENIED = (
    "the NATS user may not create consumers with several filters: write the server's configuration anew with "
    "`atoll nats-config` and start the shard again"
)
_annotated = msgspec.json.Decoder(partial.Partial[partial.Annotations]).decode


def every_type(_: ResourceType) -> bool:
    """Keep every type."""
    return True


class FollowerOptions(msgspec.Struct, frozen=True):
    """`own` is this shard's name, `store` the uid of its store; both "" for others. `types` None:
    learned from root. `wanted` selects the types that are kept; those that ownership rests on always are.
    `needed_only`: of Workspaces and LogicalClusters only those are followed that this shard needs; it needs `own` and
    `types`."""

    access: Access
    own: str = ""
    region: str = ""
    types: RootTypes | None = None
    wanted: Callable[[ResourceType], bool] = every_type
    needed_only: bool = False
    store: str = ""


class Follower:
    """`run` it as a task; cancel the task to stop. One for each store."""

    def __init__(self, store: MarkStore, options: FollowerOptions, registry: CollectorRegistry) -> None:
        self._store, self._options = store, options
        self._metrics = ReplicationMetrics(registry)
        self.writer = ReplicaWriter(store, options.own, self._metrics)
        self.writer.types = options.types
        # Without a user name, two readers must not share a consumer.
        self._access = options.access.for_reading
        self._consumer = follower_consumer(self._access.user or f"{options.own}-{secrets.token_hex(4)}")
        #: The task of each shard, and the region it was started with.
        self._running: dict[str, tuple[str, asyncio.Task[None]]] = {}
        self.consumers: dict[str, StateConsumer] = {}
        self._needed: NeededRows | None = None
        self._sought: SoughtClusters | None = None
        self._paths: SoughtPaths | None = None
        #: Set when the NATS user may not create consumers that select: then everything is followed.
        self._is_denied = asyncio.Event()
        #: Whether the shards of the site were looked at since the start.
        self._knows_members = False
        if options.needed_only:
            assert options.own and options.types is not None, "a shard, which knows its types"
            self._needed = NeededRows(self.writer, options.types, self._selection_changed)
            self.writer.written = self._needed.wrote
            self._sought = SoughtClusters(self._needed, self._unread)
            site = Site(self._unread, lambda: self.writer.root_holders)
            self._paths = SoughtPaths(self._needed, store, options.types.workspaces, site)
            self._needed.arrived = self._paths.arrived
        #: The sets of copies that a shard keeps; None: this process is none.
        self.copies = self._needed.copies if self._needed is not None else None
        if self.copies is None and options.own:
            self.copies = NeededCopies(self.writer, lambda: self._selection_changed(""))
            self.writer.written = self.copies.wrote
        keys = self._access.event_keys
        self._forgotten = forgotten_uids(store)
        self._keys = ShardKeys(keys or {}, store.get_mark(KEYS_MARK))
        if not keys:
            log.warning("events of other shards are refused", reason="the NATS credential has no event keys")

    def set_listener(self, listener: ReplicaListener) -> None:
        """Set what is notified of changed replicas. Before `run`."""
        self.writer.set_listener(listener)

    def refusal(self) -> str | None:
        """Return why this process follows everything, though it is to follow only what it needs."""
        return _DENIED if self._is_denied.is_set() else None

    def contention(self) -> str | None:
        """Return which streams are read by another process too, whose NATS user is this one's."""
        shards = sorted(name for name, each in self.consumers.items() if each.is_contended)
        return f"another process reads {', '.join(shards)} as the same NATS user: {ONE_USER_EACH}" if shards else None

    def behind_s(self) -> float:
        """For how many seconds at most a replica may have been out of date; 0 while all are current."""
        return max((consumer.behind_s for consumer in self.consumers.values()), default=0.0)

    async def seek(self, workspace: str) -> Sequence[str]:
        """Seek the shard of a cluster or of a path; see `SoughtClusters.seek` and `SoughtPaths.seek`. A follower of
        everything has nothing to seek."""
        if self._sought is None or self._paths is None:
            return ()
        return await (self._paths if ":" in workspace else self._sought).seek(workspace)

    def follow_marker(self, home: str) -> bool:
        """Follow what the shard `root` says of a home here, until `release_marker`. Return whether it was read."""
        if self._needed is not None:
            self._needed.follow_marker(home)
        return not self._unread(ROOT_SHARD)

    def release_marker(self, home: str) -> None:
        """Follow what the shard `root` says of a home here no more, where not all is followed."""
        if self._needed is not None:
            self._needed.release_marker(home)

    def _unread(self, shard: str = "") -> list[str]:
        """The shards of which not everything that is needed was read; `shard`: that one, if it was not."""
        found, names = self.consumers, [shard] if shard else self.writer.origins
        others = (name for name in names if name != self._options.own)
        unread = [name for name in others if name not in found or not found[name].has_selected]
        return unread if shard or self._knows_members else unread or [ROOT_SHARD]

    async def run(self) -> None:
        """Follow until cancelled. Raises StoreForgotten if this process's own store was struck off."""
        failures = 0
        try:
            while True:
                try:
                    await self._keep_watching()
                except StoreForgotten:
                    raise
                except Exception as error:
                    failures += 1
                    self._metrics.failed("")
                    log.exception("replication failed", error=repr(error), failures=failures)
                await asyncio.sleep(_BACKOFF.delay_s(failures))
        finally:
            await self._end(list(self._running))

    async def _keep_watching(self) -> None:
        """Follow the shards of the site, and this shard's own objects where what it needs follows from them."""
        await self._begin()
        needed = self._needed
        if needed is None:
            await self._keep_following()
            return
        await self._end(list(self._running))
        await needed.load(self.writer.origins)
        tasks = [asyncio.create_task(each) for each in (needed.watch(), self._keep_following(), self._is_denied.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.gather(*(task for task in tasks if task.done()))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            needed.close()
        await self._end(list(self._running))
        self._widen(needed)

    def _widen(self, needed: NeededRows) -> None:
        """Follow everything from now on: the NATS user may do no more."""
        log.error("of other shards everything is followed", reason=_DENIED)
        self._is_denied.set()
        self.writer.written = needed.copies.wrote
        self._needed = self._sought = self._paths = None

    async def _keep_following(self) -> None:
        while True:
            seen = self._seen()
            await self._take_types()
            await self._adjust()
            await self._changed(seen)

    async def _begin(self) -> None:
        await self.writer.route_root()
        self.writer.types = self._types()
        self.writer.origins = [name for name in self._followed() if name != self._options.own]
        if self._needed is not None and not await self._may_select():
            self._widen(self._needed)
        await self._take_mode()
        if self._store.get_mark(OWNERS_PENDING):
            await self.writer.resolve_all()

    async def _may_select(self) -> bool:
        """Whether the NATS user may follow single objects, before a store that holds everything is narrowed."""
        origins = self.writer.origins
        return (
            not origins
            or bool(self._store.get_mark(NEEDED_ONLY))
            or await may_select(self._access, self._subscription(origins[0]))
        )

    async def _take_mode(self) -> None:
        """Note whether rows are only those needed. If all are followed again, all shards are read again."""
        before, now = self._store.get_mark(NEEDED_ONLY) or b"", b"1" if self._needed is not None else b""
        if before and not now:
            for name in self.writer.origins:
                await ShardReplica(self.writer, self._origin(name, "")).forget()
        if before != now:
            await self.writer.write([Mark(NEEDED_ONLY, now)])

    # --- which shards to follow ---

    def _types(self) -> RootTypes | None:
        if self._options.types is not None:
            return self._options.types
        with self._store.snapshot() as snapshot:
            return learn_root_types(snapshot.replicas)

    async def _take_types(self) -> None:
        """Root's exports may have new identities: then all owners are resolved again."""
        types = self._types()
        if types != self.writer.types:
            self.writer.types = types
            await self.writer.resolve_all()

    def _seen(self) -> tuple[int, int, int]:
        """The apply count, and the counts of the rows that decide which shards to follow."""
        with self._store.snapshot() as snapshot:
            return snapshot.replicas.count, *self._stamps(snapshot.replicas)

    def _stamps(self, replicas: ReplicaView) -> tuple[int, int]:
        types = self.writer.types
        return replicas.last(API_EXPORTS, ROOT), replicas.last(types.shards, ROOT) if types is not None else 0

    async def _changed(self, seen: tuple[int, int, int]) -> None:
        """Return when the set of shards to follow may have changed."""
        if self._options.own == ROOT_SHARD:
            await self._own_changed()
            return
        count, *stamps = seen
        while True:
            count = await self._store.replicated(count)
            with self._store.snapshot() as snapshot:
                if list(self._stamps(snapshot.replicas)) != stamps:
                    return

    async def _own_changed(self) -> None:
        """On root's own shard the Shards are its own objects."""
        assert self.writer.types is not None, "root knows its own exports"
        scope = Scope(self.writer.types.shards, ROOT)
        with self._store.snapshot() as snapshot:
            revision = snapshot.revision
        cursor = self._store.cursor(scope, revision)
        try:
            followed = {name: region for name, (region, _) in self._running.items()}
            # A cursor does not wait before its first read.
            while not cursor.read() and self._members() == followed:
                await cursor.wait()
        finally:
            cursor.close()

    def _members(self) -> dict[str, str]:
        """The shards to follow, with their regions."""
        found = {} if self._options.own == ROOT_SHARD else {ROOT_SHARD: ""}
        announced: dict[str, list[str]] = {}
        objects = self._shard_objects()
        self._take_forgotten(objects)
        for record in objects:
            name = record.key.name
            if name != self._options.own and is_shard_name(name) and _store(record) not in self._forgotten:
                found[name] = _region(record)
                announced[name] = announced_keys(record.value)
        self._keys.announce(announced)
        for consumer in self.consumers.values():
            consumer.keys_changed()
        return dict(list(found.items())[:MAX_SHARDS])

    def _take_forgotten(self, objects: Sequence[Record]) -> None:
        for record in objects:
            if record.key.name == ROOT_SHARD:
                self._forgotten |= {each.store for each in forgotten_stores(decode(record.value))}

    def _is_forgotten(self, store: str) -> bool:
        return store in self._forgotten

    def _shard_objects(self) -> list[Record]:
        types = self.writer.types
        if types is None:
            return []
        scope = Scope(types.shards, ROOT)
        with self._store.snapshot() as snapshot:
            here = self._options.own == ROOT_SHARD
            return readable(snapshot.scan if here else snapshot.replicas.scan, scope, None, MAX_SHARDS)

    # --- following them ---

    async def _adjust(self) -> None:
        """Start and stop followers. A shard whose region changed is read again: it may send other rows."""
        members = self._members()
        await self._remember_forgotten()
        for name, (region, _) in tuple(self._running.items()):
            if members.get(name) != region:
                await self._end([name])
                if name in members:
                    await ShardReplica(self.writer, self._origin(name, "")).forget()
        if self.writer.types is not None and self._store.get_mark(OWNERS_PENDING):
            # A follower that was stopped just now was in the middle of it.
            await self.writer.resolve_all()
        if self.writer.types is not None:
            for name in self._followed():
                if name not in members and name != self._options.own:
                    log.info("shard unfollowed", shard=name)
                    await ShardReplica(self.writer, self._origin(name, "")).drop()
        self.writer.origins = sorted(members)
        await self._remember(sorted(members))
        for name, region in members.items():
            if name not in self._running:
                self._start(name, region)
        self._knows_members = True

    async def _remember_forgotten(self) -> None:
        """Store which stores were struck off, so that it holds at the next start too. Raises StoreForgotten."""
        if self._forgotten != forgotten_uids(self._store):
            await self.writer.write([Mark(FORGOTTEN_STORES, msgspec.json.encode(sorted(self._forgotten)))])
        if self._options.store and self._options.store in self._forgotten:
            raise StoreForgotten(self._options.store)

    def _start(self, name: str, region: str) -> None:
        log.info("shard followed", shard=name, region=region)
        self._running[name] = region, asyncio.create_task(self._follow(self._origin(name, region)))

    async def _end(self, names: list[str]) -> None:
        tasks = [self._running.pop(name)[1] for name in names]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for name in names:
            if self.consumers.pop(name, None) is not None:
                self._metrics.forget(name)

    async def _follow(self, origin: SourceShard) -> None:
        """Consume one shard's state until cancelled. An error of one must not stop the others."""
        failures = 0
        while True:
            subscription = self._subscription(origin.name)
            consumer = StateConsumer(self._access, subscription, ShardReplica(self.writer, origin))
            self.consumers[origin.name] = consumer
            self._metrics.follow(origin.name, consumer)
            try:
                await consumer.run()
            except CannotSelect:
                self._is_denied.set()
                return
            except Exception as error:
                failures += 1
                self._metrics.failed(origin.name)
                log.exception("following shard failed", shard=origin.name, error=repr(error), failures=failures)
            await asyncio.sleep(_BACKOFF.delay_s(failures))

    def _selection_changed(self, name: str) -> None:
        """The selection of a shard changed, of all for ""."""
        for shard in [name] if name else list(self.consumers):
            if shard in self.consumers:
                self.consumers[shard].selection_changed()

    def _subscription(self, name: str) -> ConsumerOptions:
        needed = self._needed
        return ConsumerOptions(
            name,
            whole_filters(name) if needed is not None else all_subjects(STATE, name),
            self._consumer,
            batch=_BATCH,
            keys=functools.partial(self._keys.of, name),
            refused=lambda reason: self._metrics.refused(name, reason),
            selection=self._selection(name),
        )

    def _selection(self, name: str) -> Selection | None:
        if self._needed is not None:
            return self._needed.of(name)
        return SelectedCopies(self.copies, name) if self.copies is not None else None

    def _origin(self, name: str, region: str) -> SourceShard:
        wanted = functools.partial(self._is_wanted, name)
        return SourceShard(name, region, self._options.region, wanted, self._is_forgotten)

    def _is_wanted(self, origin: str, key: ObjectKey) -> bool:
        types, type = self.writer.types, key.type
        if is_copy(type):
            return self.copies is not None and self.copies.keeps(key)
        if self._needed is not None and not (self._needed.keeps(key) or self._follows(origin, key)):
            return False
        if type in (LOGICAL_CLUSTERS, API_EXPORTS) or type.resource in ("workspaces", "shards"):
            return True
        return self._options.wanted(type) or (types is not None and type in (types.workspaces, types.shards))

    def _follows(self, origin: str, key: ObjectKey) -> bool:
        return origin in self.consumers and self.consumers[origin].follows(key)

    def _followed(self) -> list[str]:
        data = self._store.get_mark(FOLLOWED)
        return msgspec.json.decode(data, type=list[str]) if data else []

    async def _remember(self, names: list[str]) -> None:
        if names != self._followed():
            await self.writer.write([Mark(FOLLOWED, msgspec.json.encode(names))])
        if self._keys.state != (self._store.get_mark(KEYS_MARK) or b"{}"):
            await self.writer.write([Mark(KEYS_MARK, self._keys.state)])


def _store(record: Record) -> str:
    try:
        return _annotated(record.value).metadata.annotations.get(STORE, "")
    except msgspec.DecodeError:
        return ""


def forgotten_uids(store: MarkStore) -> set[str]:
    """The uids of the stores that were struck off, as far as this process was told."""
    return set(msgspec.json.decode(store.get_mark(FORGOTTEN_STORES) or b"[]", type=list[str]))


def _region(record: Record) -> str:
    try:
        return partial.labels(record.value).get("region", "")
    except msgspec.DecodeError:
        return ""
