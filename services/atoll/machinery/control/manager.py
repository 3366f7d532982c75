"""Runs a shard's controllers: log entries become keys, keys become reconciles.

One task reads the log behind the saved position and hands each entry to the controllers that watch its type; a few
workers a controller take keys. The position saved is below everything unfinished, so a restart repeats and never
skips. Where a key stays unfinished for long, the controllers that have one are saved by name beside a newer position: a
restart then lists their keys from state, as all do when the log no longer reaches back far enough.

What other shards publish comes by `arrived` to the controllers that ask for it. It stands in no log of this shard: a
count of arrivals is saved while nothing of them is left to do, and a restart that finds another count lists the keys of
those controllers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import islice
from typing import Any, Protocol, runtime_checkable

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from atoll.machinery.control.queue import MAX_DELAY_S, WorkQueue
from atoll.machinery.control.worker import Observer, work
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.storage.contract import LogEntry, RevisionCompacted, Store

log = structlog.get_logger()

POSITION, THERE = "controllers", "controllers.there"
READ_LIMIT = 500
SAVE_INTERVAL_S = 1.0
FIRST_REVISION = 1
#: What arrivals are asked for at: above every revision, so that they hold no position back.
ARRIVED_REVISION = 1 << 62
#: How far a key that is looked at again and again may hold the saved position back; revisions count microseconds.
HELD_BACK_US = 600 * 1_000_000
#: Keys listed from state before others have their turn.
LISTED_AT_ONCE = 500
#: Waits after a commit was announced and the log showed nothing: doubled up to the second.
NOTHING_DELAY_S, MAX_NOTHING_DELAY_S = 0.005, 0.5
MAX_TYPES = 10_000


class Controller(Protocol):
    """One controller. Keys are hashable values of its own."""

    name: str
    workers: int
    # A controller whose failed keys must come back sooner than the queue's limit names `max_delay_s` too; one that
    # may look once where many entries ask for the same key says with `settle_s` how long it waits for more of them.
    # One that is concerned with objects of other shards is an `Outward`.

    def watches(self, type: ResourceType) -> bool:
        """Whether entries of a type concern it. Asked once a type."""

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        """What an entry asks to be reconciled. Cheap, and free of side effects."""

    def all_keys(self) -> Iterable[Hashable]:
        """Everything there is to reconcile, from state. Used when the log does not reach back."""

    async def reconcile(self, key: Any) -> float | None:
        """Bring what the key stands for closer to what it should be; seconds until another look, or None.

        Reads state, never events; an exception means another turn, later.
        """


@runtime_checkable
class Outward(Controller, Protocol):
    """A controller that is concerned with objects of other shards too. `all_keys` covers those."""

    def watches_there(self, type: ResourceType) -> bool:
        """Whether arrivals of a type concern it. Asked once a type."""

    def keys_there(self, entry: LogEntry) -> Iterable[Hashable]:
        """What an arrival asks to be reconciled. ADDED and DELETED also mean that an object counts from now on, or no
        more; revisions are those of its own shard. Cheap, and free of side effects."""


class Positions(Protocol):
    """Where the manager keeps its position; written lazily."""

    def get_mark(self, name: str) -> bytes | None: ...

    def set_mark(self, name: str, value: bytes) -> None: ...


class ControllerMetrics:
    """workqueue_* metrics, by Kubernetes' names."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._depth = Gauge("workqueue_depth", "Keys waiting.", ("name",), registry=registry)
        self._retries = Counter("workqueue_retries_total", "Reconciles that failed.", ("name",), registry=registry)
        self._durations = Histogram(
            "workqueue_work_duration_seconds", "Time a reconcile took.", ("name",), registry=registry
        )

    def observer(self, name: str, queue: WorkQueue[Hashable]) -> Observer:
        """What the workers of a controller tell their turns to; its depth is read when asked for."""
        self._depth.labels(name).set_function(lambda: queue.depth)
        retries, durations = self._retries.labels(name), self._durations.labels(name)

        def observe(seconds: float, *, failed: bool) -> None:
            durations.observe(seconds)
            if failed:
                retries.inc()

        return observe


class Manager:
    """The controllers of one shard. `run` ends when cancelled, or with what the store raised."""

    def __init__(
        self, store: Store, positions: Positions, controllers: Sequence[Controller], metrics: ControllerMetrics
    ) -> None:
        self._store, self._positions, self._metrics = store, positions, metrics
        self._controllers = tuple(controllers)
        self._queues: dict[str, WorkQueue[Hashable]] = {
            c.name: WorkQueue(max_delay_s=getattr(c, "max_delay_s", MAX_DELAY_S)) for c in controllers
        }
        #: Controllers whose keys are being listed: what of them is unfinished is not known yet.
        self._listing: set[str] = set()
        #: Whether every key from before the start was asked for: what Kubernetes calls synced.
        self.listed = False
        self._interested: dict[ResourceType, tuple[Controller, ...]] = {}
        self._settle_s: dict[str, float] = {c.name: getattr(c, "settle_s", 0.0) for c in controllers}
        self._position = 0
        self._outward = tuple(controller for controller in self._controllers if isinstance(controller, Outward))
        self._interested_there: dict[ResourceType, tuple[Outward, ...]] = {}
        #: Arrivals up to this count were handed out.
        self._arrived = 0

    async def run(self) -> None:
        """Dispatch and reconcile until cancelled; the position is saved at the end."""
        await self._begin()
        self.listed = True
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._dispatch())
                tasks.create_task(self._save())
                for controller in self._controllers:
                    queue = self._queues[controller.name]
                    observer = self._metrics.observer(controller.name, queue)
                    for _ in range(controller.workers):
                        tasks.create_task(work(controller.name, queue, controller.reconcile, observer))
        finally:
            self._save_now()

    def idle(self) -> bool:
        """Whether everything up to the last commit was dispatched and reconciled."""
        with self._store.snapshot() as snapshot:
            dispatched = self._position >= snapshot.revision and not self._listing
        return dispatched and not any(self._queues.values())

    def safe_point(self) -> tuple[int, tuple[str, ...]]:
        """The revision from which reading the log again misses nothing, but for the controllers named: their keys have
        to be listed.
        """
        floor = self._position - HELD_BACK_US
        position, lagging = self._position, set(self._listing)
        for name, queue in self._queues.items():
            oldest = queue.oldest()
            if oldest is not None and oldest - 1 < floor:
                lagging.add(name)
            elif oldest is not None:
                position = min(position, oldest - 1)
        return position, tuple(sorted(lagging))

    def wants_there(self, type: ResourceType) -> bool:
        """Whether any controller is concerned with objects of a type on other shards."""
        return bool(self._watching_there(type))

    def arrived(self, entries: Iterable[LogEntry], count: int) -> None:
        """Objects of other shards changed, count from now on or no more; all up to the store's apply count are told."""
        for entry in entries:
            for controller in self._watching_there(entry.key.type):
                self._ask(controller.name, controller.keys_there, entry, ARRIVED_REVISION)
        self._arrived = max(self._arrived, count)

    async def _begin(self) -> None:
        await self._begin_here()
        if not self._outward:
            return
        with self._store.snapshot() as snapshot:
            count = snapshot.replicas.count
        if int(self._positions.get_mark(THERE) or b"-1") != count:
            await self._list(self._outward)
        self._arrived = max(self._arrived, count)

    async def _begin_here(self) -> None:
        saved = self._positions.get_mark(POSITION)
        if saved is None:
            await self._resync()
            return
        position, *lagging = saved.decode().split()
        self._position = int(position)
        try:
            self._store.tail(self._position, 1)
        except RevisionCompacted:
            await self._resync()
        else:
            await self._list([each for each in self._controllers if each.name in lagging])

    async def _resync(self) -> None:
        """Go on from now, with every key there is."""
        with self._store.snapshot() as snapshot:
            self._position = snapshot.revision
        await self._list(self._controllers)

    async def _list(self, controllers: Sequence[Controller]) -> None:
        """Ask for all keys of some controllers.

        What was listed may stand in no log entry any more. It is asked for at the first revision there can be, so that
        a restart before all of it is done lists again. The reading transaction stays open between the slices: it pins
        pages for as long as the listing takes, and is the price of one pass over one state.
        """
        self._listing = {controller.name for controller in controllers}
        for controller in controllers:
            log.debug("controller lists its keys from state", controller=controller.name, revision=self._position)
            queue, keys = self._queues[controller.name], iter(controller.all_keys())
            while some := list(islice(keys, LISTED_AT_ONCE)):
                for key in some:
                    queue.add(key, FIRST_REVISION)
                await asyncio.sleep(0)
            self._listing.discard(controller.name)

    async def _dispatch(self) -> None:
        delay_s = 0.0
        while True:
            try:
                entries = self._store.tail(self._position, READ_LIMIT)
            except RevisionCompacted:
                await self._resync()
                continue
            for entry in entries:
                self._hand_out(entry)
                self._position = entry.revision
            if entries:
                delay_s = 0.0
            elif delay_s:
                # A commit was announced, and the log does not show it: asking at once would ask for ever.
                await asyncio.sleep(delay_s)
            if len(entries) < READ_LIMIT:
                await self._store.committed(self._position)
                delay_s = min(max(delay_s * 2, NOTHING_DELAY_S), MAX_NOTHING_DELAY_S)
            else:
                await asyncio.sleep(0)

    def _hand_out(self, entry: LogEntry) -> None:
        for controller in self._watching(entry.key.type):
            self._ask(controller.name, controller.keys, entry, entry.revision)

    def _ask(self, name: str, keys: Callable[[LogEntry], Iterable[Hashable]], entry: LogEntry, revision: int) -> None:
        try:
            for key in keys(entry):
                self._queues[name].add(key, revision, self._settle_s[name])
        except Exception:
            # One odd object must not stop every controller of the shard; the entry would come again for ever.
            log.exception("entry not understood", controller=name, revision=entry.revision)

    def _watching(self, type: ResourceType) -> tuple[Controller, ...]:
        found = self._interested.get(type)
        if found is None:
            if len(self._interested) >= MAX_TYPES:
                self._interested.clear()
            found = tuple(controller for controller in self._controllers if controller.watches(type))
            self._interested[type] = found
        return found

    def _watching_there(self, type: ResourceType) -> tuple[Outward, ...]:
        found = self._interested_there.get(type)
        if found is None:
            if len(self._interested_there) >= MAX_TYPES:
                self._interested_there.clear()
            found = tuple(controller for controller in self._outward if controller.watches_there(type))
            self._interested_there[type] = found
        return found

    async def _save(self) -> None:
        """Save lazily: a position behind the truth costs a repetition, not a loss."""
        while True:
            await asyncio.sleep(SAVE_INTERVAL_S)
            self._save_now()

    def _save_now(self) -> None:
        position, lagging = self.safe_point()
        value = " ".join([str(position), *lagging]).encode()
        if self._positions.get_mark(POSITION) != value:
            self._positions.set_mark(POSITION, value)
        if any(self._queues[controller.name] or controller.name in self._listing for controller in self._outward):
            return
        count = str(self._arrived).encode()
        if self._outward and self._positions.get_mark(THERE) != count:
            self._positions.set_mark(THERE, count)
